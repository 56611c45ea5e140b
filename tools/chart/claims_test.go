// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiversion "k8s.io/apimachinery/pkg/util/version"

	"go.yaml.in/yaml/v3"
)

// rulesOfClaims are a SharingConfig with a profile for some namespaces, and with pools of both front ends.
const rulesOfClaims = `apiVersion: kerf.dev/v1alpha2
kind: SharingConfig
spec:
  pools:
  - {name: claims, nodeSelector: {gpu: h100}, frontend: dra}
  - {name: limits, nodeSelector: {gpu: t4}}
  profiles:
  - {name: night, percent: 50, namespaces: [ml-*, "!ml-test"]}
  - {name: small, memory: 10GiB}
`

func withDRA(mutate, rules string) values {
	return values{"dra": values{"enabled": true}, "admission": values{"mutate": mutate}, "sharingConfig": rules}
}

// namespacesOfClaims are the tenant's, and those that the profile is about.
func namespacesOfClaims() []*corev1.Namespace {
	all := []*corev1.Namespace{tenant(nil)}
	for _, name := range []string{"ml-train", "ml-test"} {
		n := tenant(nil)
		n.Name = name
		all = append(all, n)
	}
	return all
}

// TestClaims has the API server's own code judge claims and templates. It does so by the rules of the chart's values,
// and by those that the scheduler has written.
func TestClaims(t *testing.T) {
	live := objects(t, made(t, withDRA("always", strings.Replace(rulesOfClaims, "ml-*", "other", 1))))
	for _, o := range live {
		if m, is := o.Object.(*corev1.ConfigMap); is && m.Name == "kerf-profiles" {
			m.Annotations = map[string]string{"kerf.dev/sharing-config-hash": "x"}
			m.Data = map[string]string{"night": "kerf.dev/gpu-percent=50 namespaces:ml-*,!ml-test",
				"small": "kerf.dev/gpu-memory-gib=10"}
		}
	}
	servers := map[string]*apiServer{
		"values": newAPIServer(t, withDRA("never", rulesOfClaims), namespacesOfClaims()...),
		"live":   serving(t, live, namespacesOfClaims()...),
	}
	for _, a := range attempts(t, "claims.yaml") {
		for name, s := range servers {
			t.Run(name+"/"+a.Name, func(t *testing.T) {
				if err := s.ask(t, a.request).wants(a.Denied, ""); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestTemplatesAreAdmitted: the policies admit each template that Kerf ships, and each that it translates to.
func TestTemplatesAreAdmitted(t *testing.T) {
	s := newAPIServer(t, with("dra", "enabled", true), cluster()...)
	files, err := filepath.Glob(filepath.Join(deploy, "dra", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	translated, err := filepath.Glob(filepath.Join(deploy, "../sharing/translate/manifest/testdata/claims/*.want.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, translated...)
	n := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			var o values
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatal(err)
			}
			if o["kind"] != "ResourceClaimTemplate" {
				continue
			}
			n++
			if m, is := o["metadata"].(values); is {
				delete(m, "namespace")
			}
			r := request{Operation: "CREATE", Resource: "resourceclaimtemplates", Object: o}
			if err := s.ask(t, r).wants("", ""); err != nil {
				t.Errorf("%s: %v", filepath.Base(file), err)
			}
		}
	}
	if n < 20 {
		t.Errorf("%d templates", n)
	}
}

// TestAmountsByClaim: a pod that can only go to a pool with "frontend: dra" gets a warning for amounts, with the claim
// to write. Whole GPUs, and pods for other pools, get none.
func TestAmountsByClaim(t *testing.T) {
	const h100 = "h100"
	one := strings.Replace(rulesOfClaims, "  - {name: limits, nodeSelector: {gpu: t4}}\n", "", 1)
	for name, c := range map[string]struct {
		rules, selector string
		limits          values
		warned          string
	}{
		"memory": {rulesOfClaims, h100, values{"kerf.dev/gpu-memory-gib": "10"},
			`class share.kerf.dev with capacity.requests {memory: 10Gi}; kerf translate --to dra writes it`},
		"memory and percent": {rulesOfClaims, h100, values{"kerf.dev/gpu-memory-gib": "10",
			"kerf.dev/gpu-percent": "25"}, `{memory: 10Gi, percent: "25"}`},
		"percent": {rulesOfClaims, h100, values{"kerf.dev/gpu-percent": "25"},
			`{memory: <the memory of the share>, percent: "25"}`},
		"a whole GPU":  {rulesOfClaims, h100, values{"kerf.dev/gpu": "1"}, ""},
		"another pool": {rulesOfClaims, "t4", values{"kerf.dev/gpu-memory-gib": "10"}, ""},
		"any pool":     {rulesOfClaims, "", values{"kerf.dev/gpu-memory-gib": "10"}, ""},
		"one front end": {one, "", values{"kerf.dev/gpu-memory-gib": "10"},
			"a pool with frontend dra takes amounts by ResourceClaim alone"},
		"none": {strings.Replace(rulesOfClaims, ", frontend: dra", "", 1), h100,
			values{"kerf.dev/gpu-memory-gib": "10"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := values{}
			if c.selector != "" {
				spec["nodeSelector"] = values{"gpu": c.selector}
			}
			r := share(nil, spec, values{"resources": values{"limits": c.limits}})
			s := newAPIServer(t, withDRA("never", c.rules), tenant(nil))
			if err := s.ask(t, r).wants("", c.warned); err != nil {
				t.Error(err)
			}
			r.Object = values{"spec": values{"template": values{"spec": r.Object["spec"]},
				"selector": values{"matchLabels": values{"a": "b"}}}}
			r.Resource = "daemonsets"
			if err := s.ask(t, r).wants("", c.warned); err != nil {
				t.Errorf("in a template: %v", err)
			}
		})
	}
}

// TestExtendedResources: the class of whole GPUs stands for limits of kerf.dev/gpu, and no class for amounts.
func TestExtendedResources(t *testing.T) {
	got := map[string]string{}
	for name, c := range byName[*resourceapi.DeviceClass](t, with("dra", "enabled", true)) {
		if r := c.Spec.ExtendedResourceName; r != nil {
			got[*r] = name
		}
	}
	if got["kerf.dev/gpu"] != "whole.kerf.dev" || got["kerf.dev/mig-1g.10gb"] != "mig-1g.10gb.kerf.dev" {
		t.Errorf("%v", got)
	}
	for _, amount := range []string{"kerf.dev/gpu-memory-gib", "kerf.dev/gpu-percent"} {
		if got[amount] != "" {
			t.Errorf("%s stands for %s", got[amount], amount)
		}
	}
}

// TestExpressionsOfClaims: the oldest Kubernetes with the DRA front end compiles each expression.
func TestExpressionsOfClaims(t *testing.T) {
	n := 0
	for _, mutate := range []string{"always", "never"} {
		for name, p := range byName[*admissionv1.ValidatingAdmissionPolicy](t, withDRA(mutate, rulesOfClaims)) {
			switch name {
			case "kerf-claims", "kerf-claim-profile", "kerf-amounts-by-claim", "kerf-resourceslices":
				n += compiles(t, p, apiversion.MajorMinor(1, 36))
			}
		}
	}
	if n < 60 {
		t.Errorf("%d expressions were compiled", n)
	}
}

// TestSlicesOfTheOwnNode: the agent writes ResourceSlices of its driver and of the node that its token names. This
// policy judges no other user.
func TestSlicesOfTheOwnNode(t *testing.T) {
	s := newAPIServer(t, withDRA("never", rulesOfClaims), tenant(nil))
	slice := func(driver, node string) values {
		return values{"spec": values{"driver": driver, "nodeName": node, "pool": values{"name": node,
			"generation": 1, "resourceSliceCount": 1}}}
	}
	const denied = "may write the ResourceSlices of gpu.kerf.dev of its own node alone"
	for name, c := range map[string]struct {
		user, driver, node, denied string
	}{
		"its own node":                  {"agent", "gpu.kerf.dev", ownNode, ""},
		"another node":                  {"agent", "gpu.kerf.dev", "n2", denied},
		"another driver":                {"agent", "gpu.nvidia.com", ownNode, denied},
		"a token that names no node":    {"other-agent", "gpu.kerf.dev", ownNode, denied},
		"another user, on another node": {"", "gpu.nvidia.com", "n2", ""},
	} {
		object := slice(c.driver, c.node)
		for _, r := range []request{
			{Operation: "CREATE", Resource: "resourceslices", User: c.user, Object: object},
			{Operation: "UPDATE", Resource: "resourceslices", User: c.user, Object: object, Old: object},
		} {
			if err := s.ask(t, r).wants(c.denied, ""); err != nil {
				t.Errorf("%s: %s: %v", name, r.Operation, err)
			}
		}
	}
}
