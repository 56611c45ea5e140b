// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing/translate"
)

// deviceClasses are the DRA classes of NVIDIA's driver and of HAMi.
func deviceClasses() []string {
	return []string{"gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com", "hami-core-gpu.project-hami.io"}
}

// classNames are the keys of a DRA class in a claim.
func classNames() []string { return []string{"deviceClassName", "resourceClassName"} }

// class is true for a DRA class that selects NVIDIA's GPUs, or can by its name.
func (r *remains) class(name string) bool {
	return slices.Contains(deviceClasses(), name) || r.classes[name] || translate.MaybeGPUClass(name)
}

// objectsOf are the objects of a file, and the items of lists.
func objectsOf(docs []*yaml.Node) (out []*yaml.Node) {
	for _, doc := range docs {
		for _, n := range doc.Content {
			out = append(append(out, n), list(get(n, "items"))...)
		}
	}
	return out
}

// deviceClass notes whether a DeviceClass selects NVIDIA's GPUs.
func (r *remains) deviceClass(n *yaml.Node) {
	in := objectOf(n, object{})
	if in.kind != "DeviceClass" {
		return
	}
	words(get(n, "spec"), 0, map[*yaml.Node]bool{}, func(scalar *yaml.Node) {
		if classWord.MatchString(scalar.Value) {
			r.classes[in.name] = true
		}
	})
}

// claim notes whether a ResourceClaim requests a GPU.
func (r *remains) claim(n *yaml.Node) {
	in := objectOf(n, object{})
	if in.kind != "ResourceClaim" && in.kind != "ResourceClaimTemplate" {
		return
	}
	gpu := r.claims[in.name]
	every(get(n, "spec"), 0, map[*yaml.Node]bool{}, func(n *yaml.Node) {
		gpu = gpu || n.Kind == yaml.ScalarNode && classWord.MatchString(n.Value)
		for _, key := range classNames() {
			gpu = gpu || r.class(scalar(get(n, key)))
		}
	})
	r.claims[in.name] = gpu
}

// className names a class or a selector of NVIDIA's GPUs. Those of deviceClasses are named where they are.
func (r *remains) className(n *yaml.Node, p place) {
	for _, key := range classNames() {
		if name := get(n, key); r.class(scalar(name)) && !slices.Contains(deviceClasses(), scalar(name)) {
			r.say(p, name.Line, "device class "+scalar(name)+" can select a GPU and", r.remedyDRA)
		}
	}
	if e := get(n, "expression"); classWord.MatchString(scalar(e)) {
		r.say(p, e.Line, "selector for "+classWord.FindString(scalar(e)), r.remedyDRA)
	}
}

// resourceClaim names a pod's ResourceClaim that requests a GPU, or that the file does not have.
func (r *remains) resourceClaim(n *yaml.Node, p place) {
	for _, key := range []string{"resourceClaimName", "resourceClaimTemplateName"} {
		name := get(n, key)
		if name == nil || name.Kind != yaml.ScalarNode {
			continue
		}
		if gpu, known := r.claims[name.Value]; gpu {
			r.say(p, name.Line, "ResourceClaim "+name.Value+" requests a GPU and", r.remedyDRA)
		} else if !known {
			r.say(p, name.Line, "ResourceClaim "+name.Value+" can request a GPU and", r.remedyDRA)
		}
	}
}
