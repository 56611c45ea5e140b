// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"path"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiversion "k8s.io/apimachinery/pkg/util/version"
)

// rendered is what the chart makes for an API server of a version without MutatingAdmissionPolicy.
func rendered(t *testing.T, version string, set values) map[string]string {
	t.Helper()
	files, err := renderOn(filepath.Join(deploy, "chart"), namespace, version, set)
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(files, func(name, text string) bool { return !says(text) || path.Ext(name) != ".yaml" })
	return files
}

// profiled has two profiles whose pods the chart could fill in.
func profiled() values {
	return values{"sharingConfig": `
apiVersion: kerf.dev/v1alpha2
kind: SharingConfig
spec:
  profiles:
  - {name: small, memory: 10GiB, percent: 10}
  - {name: whole, gpuCount: 2}
  - {name: odd, memory: 1500MiB}
  pools: [{name: default, mode: shared}]
`}
}

// TestNoMutationWithoutTheKind: auto asks the API server for the kind, and not for its version.
func TestNoMutationWithoutTheKind(t *testing.T) {
	with := func(mode string) values { return values{"admission": values{"mutate": mode}} }
	for name, c := range map[string]struct {
		set     values
		kinds   []string
		mutates bool
	}{
		"auto, with it": {with("auto"), []string{mutatingKind}, true}, "auto, without it": {with("auto"), nil, false},
		"always": {with("always"), nil, true}, "never": {with("never"), []string{mutatingKind}, false},
	} {
		files, err := renderOn(filepath.Join(deploy, "chart"), namespace, kubernetes, c.set, c.kinds...)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for file := range files {
			text.WriteString(files[file])
		}
		if has := strings.Contains(text.String(), "kind: MutatingAdmissionPolicy\n"); has != c.mutates {
			t.Errorf("%s: it changes pods: %t", name, has)
		}
		if said := strings.Contains(files["NOTES.txt"], "has no MutatingAdmissionPolicy"); said != (name ==
			"auto, without it") {
			t.Errorf("%s: the notes say so: %t", name, said)
		}
	}
}

// asking is a pod whose containers a and b have these limits.
func asking(notes, spec values, a, b values) request {
	all := values{"containers": []any{values{"name": "a", "resources": values{"limits": a}},
		values{"name": "b", "resources": values{"limits": b}}}}
	maps.Copy(all, spec)
	return request{Operation: "CREATE", Resource: "pods", Object: values{
		"metadata": values{"name": "p", "namespace": "tenant", "annotations": notes}, "spec": all}}
}

// TestRefusedWithTheMissingFields: where Kerf cannot fill in a pod, the refusal or the warning names what to write.
func TestRefusedWithTheMissingFields(t *testing.T) {
	translating := profiled()
	translating["admission"] = values{"translate": values{"enabled": true}}
	s := serving(t, objects(t, rendered(t, "v1.33.6", translating)), tenant(map[string]string{
		"kerf.dev/translate": "true"}))
	own := values{"schedulerName": "kerf-scheduler"}
	gib := values{"kerf.dev/gpu-memory-gib": "1"}
	for name, c := range map[string]struct {
		ask            request
		denied, warned string
	}{
		"a profile": {ask: asking(values{"kerf.dev/profile": "small"}, own, nil, nil),
			denied: `write into resources.limits of container "a": kerf.dev/gpu-memory-gib: "10", kerf.dev/gpu-percent: "10"`},
		"a container's profile": {ask: asking(values{"profile.kerf.dev/b": "whole"}, own, gib, nil),
			denied: `write into resources.limits of container "b": kerf.dev/gpu: "2"`},
		"a profile that has none": {ask: asking(values{"kerf.dev/profile": "odd"}, own, nil, nil),
			denied: `profile "odd" has no amounts here`},
		"a profile with amounts": {ask: asking(values{"kerf.dev/profile": "small"}, own, gib, nil)},
		"no profile":             {ask: asking(nil, nil, nil, nil)},
		"no scheduler":           {ask: asking(nil, nil, gib, nil), warned: "write spec.schedulerName: kerf-scheduler"},
		"another one":            {ask: asking(nil, values{"schedulerName": "volcano"}, gib, nil)},
		"HAMi's words": {ask: asking(nil, own, values{"nvidia.com/gpu": "2", "nvidia.com/gpumem": "4096",
			"nvidia.com/gpucores": "25"}, values{"nvidia.com/gpu": "1"}),
			denied: `container "a": kerf.dev/gpu-memory-gib: "8", kerf.dev/gpu-percent: "50", with the annotation ` +
				`gpu-count.kerf.dev/a: "2"; container "b": kerf.dev/gpu: "1"; kerf translate does so`},
		"a MIG instance of NVIDIA's plugin": {ask: asking(nil, own, values{"nvidia.com/mig-1g.10gb": "1"}, nil),
			denied: `container "a": kerf.dev/mig-1g.10gb: "1"`},
		"words without a counterpart": {ask: asking(nil, own, values{"nvidia.com/gpu": "0.5"}, nil),
			denied: "no counterpart in Kerf"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := s.ask(t, c.ask).wants(c.denied, c.warned); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestExpressionsWithoutTheKind: what is installed in place of mutation compiles on the oldest version that takes it.
func TestExpressionsWithoutTheKind(t *testing.T) {
	translating := profiled()
	translating["admission"] = values{"translate": values{"enabled": true}}
	for version, set := range map[string]values{"1.30": profiled(), "1.32": translating} {
		on := "v" + version + ".0"
		if version == "1.32" { // an API server compiles new expressions as the version before it
			on = "v1.33.0"
		}
		for _, o := range objects(t, rendered(t, on, set)) {
			if p, is := o.Object.(*admissionv1.ValidatingAdmissionPolicy); is {
				compiles(t, p, apiversion.MustParseGeneric(version))
			}
		}
	}
	_, err := renderOn(filepath.Join(deploy, "chart"), namespace, "v1.32.9", translating)
	if err == nil || !strings.Contains(err.Error(), "admission.translate needs Kubernetes 1.33") {
		t.Errorf("translation on 1.32: %v", err)
	}
}
