// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// gpuNodes is the kind GPUNode as the API server reads it; unknown fields are errors.
func gpuNodes(t *testing.T) *apiextensions.CustomResourceDefinition {
	t.Helper()
	s := runtime.NewScheme()
	install.Install(s)
	text := made(t, values{})["agent/05-crd-gpunodes.yaml"]
	o, _, err := serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer().Decode([]byte(text),
		nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Default(o)
	if keep := o.(*apiextensionsv1.CustomResourceDefinition).Annotations["helm.sh/resource-policy"]; keep != "keep" {
		t.Errorf("helm uninstall deletes the kind and all cordons: policy %q", keep)
	}
	crd := &apiextensions.CustomResourceDefinition{}
	if err := s.Convert(o, crd, nil); err != nil {
		t.Fatal(err)
	}
	crd.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
	return crd
}

// TestGPUNodeIsValidated has the API server's own code judge the kind, with the cost of its rules, and objects of it.
func TestGPUNodeIsValidated(t *testing.T) {
	crd := gpuNodes(t)
	if errs := crdvalidation.ValidateCustomResourceDefinition(t.Context(), crd); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	of, err := apiextensions.GetSchemaForVersion(crd, crd.Spec.Versions[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	structural, err := schema.NewStructural(of.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	fields, _, err := validation.NewSchemaValidator(of.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	for name, c := range map[string]struct{ object, says string }{
		"nothing": {object: "{}"},
		"a cordon": {object: `{spec: {cordonedGPUs: [{uuid: GPU-00000000-0000-0000-0000-000000000020, reason: fan,
			since: "2026-09-01T10:00:00Z"}], cordoned: {GPU-1: {}}}}`},
		"a cordon with another zone": {object: `{spec: {cordonedGPUs: [{uuid: GPU-1, since: "2026-09-01T10:00:00.5+02:00"}]}}`},
		"an index":                   {object: `{spec: {cordonedGPUs: [{uuid: "0"}]}}`, says: "must be the UUID of a GPU"},
		"a MIG instance":             {object: `{spec: {cordonedGPUs: [{uuid: MIG-1}]}}`, says: "nvidia-smi -L lists them"},
		"an index, as before":        {object: `{spec: {cordoned: {"0": {}}}}`, says: "each key must be the UUID"},
		"a day":                      {object: `{spec: {cordonedGPUs: [{uuid: GPU-1, since: yesterday}]}}`, says: "must be a time"},
		"a drain of the driver": {object: `{spec: {driverDrain: {reason: "580 to 590", by: ops,
			since: "2026-09-01T10:00:00Z"}}}`},
		"a drain since a day": {object: `{spec: {driverDrain: {since: yesterday}}}`, says: "must be a time"},
		"memory of a container": {object: `{spec: {grantMemory: [{podUID: u, container: main, namespace: ns, pod: p,
			memoryGiB: 12}]}}`},
		"an assigned claim": {object: `{spec: {assignedClaims: [{uid: u, namespace: ns, name: c, devices: [d],
			allocatedAt: "2026-09-01T10:00:00Z"}]}}`},
		"a claim without a device": {object: `{spec: {assignedClaims: [{uid: u, namespace: ns, name: c,
			allocatedAt: ""}]}}`, says: "devices"},
		"memory of no pod": {object: `{spec: {grantMemory: [{container: main, memoryGiB: 12}]}}`, says: "podUID"},
		"no memory": {object: `{spec: {grantMemory: [{podUID: u, container: main, memoryGiB: 0}]}}`,
			says: "greater than or equal to 1"},
		"a condition": {object: `{status: {observedGeneration: 2, conditions: [{type: Ready, status: "True",
			reason: Ready, observedGeneration: 2}]}}`},
		"a condition of another status": {object: `{status: {conditions: [{type: Ready, status: ready}]}}`,
			says: "Unsupported value"},
	} {
		o := values{}
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(c.object, "\t", " ")), &o); err != nil {
			t.Fatal(err)
		}
		object := jsonOf(t, o)
		errs := validation.ValidateCustomResource(field.NewPath(""), object, fields)
		broken, _ := rules.Validate(t.Context(), field.NewPath(""), structural, object, nil,
			celconfig.RuntimeCELCostBudget)
		errs = append(errs, broken...)
		switch said := errs.ToAggregate(); {
		case said == nil && c.says != "":
			t.Errorf("%s: taken, want %q", name, c.says)
		case said != nil && (c.says == "" || !strings.Contains(said.Error(), c.says)):
			t.Errorf("%s: %v, want %q", name, said, c.says)
		}
	}
}
