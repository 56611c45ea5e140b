// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/translate"
)

// wholeGPU is the resource of an amount that names none.
const wholeGPU = "nvidia.com/gpu"

// form is a resource that is written as a name and a quantity.
type form struct {
	name, quantity string
	// unnamed is true if a quantity without a name counts whole GPUs.
	unnamed bool
	// more are keys of HAMi's amounts, by the resource.
	more map[string][]string
}

// forms are those of a SparkApplication, and of the objects and the chart of vLLM's production stack.
func forms() []form {
	return []form{
		{name: "name", quantity: "quantity"},
		{name: "gpuType", quantity: "gpu"},
		{name: "requestGPUType", quantity: "requestGPU", unnamed: true, more: map[string][]string{
			"nvidia.com/gpumem":            {"requestGPUMem", "limitGPUMem"},
			"nvidia.com/gpumem-percentage": {"requestGPUMemPercentage", "limitGPUMemPercentage"},
			"nvidia.com/gpucores":          {"requestGPUCores", "limitGPUCores"},
		}},
	}
}

// amount translates a resource that is written as a name and a quantity. The list of what stays has the others.
func (w *walk) amount(n *yaml.Node, in object) {
	if w.options.ByClaim != nil {
		return
	}
	for _, f := range forms() {
		name, quantity := get(n, f.name), get(n, f.quantity)
		resource := scalar(name)
		if name == nil && f.unnamed {
			resource = wholeGPU
		}
		if quantity == nil || quantity.Kind != yaml.ScalarNode || !foreign(resource) {
			continue
		}
		limits := map[string]string{resource: w.options.Decimal(quantity.Value)}
		var drop []string
		for other, keys := range f.more {
			for _, key := range keys {
				if v := get(n, key); v != nil {
					limits[other], drop = w.options.Decimal(scalar(v)), append(drop, key)
				}
			}
		}
		w.rewrite(n, in, f, limits, drop)
	}
}

// rewrite has one amount request the same of Kerf, if one resource says it.
func (w *walk) rewrite(n *yaml.Node, in object, f form, limits map[string]string, drop []string) {
	const only = "main"
	change, err := w.options.Pod(translate.Pod{Containers: []translate.Container{{Name: only, Limits: limits}}})
	if err != nil {
		w.fail(in, err)
		return
	}
	if len(change.Limits[only]) != 1 || len(change.Annotations) > 0 {
		return
	}
	w.result.Pods++
	w.result.Changed++
	w.changed = append(w.changed, in)
	name, quantity := get(n, f.name), get(n, f.quantity)
	for key, value := range change.Limits[only] {
		if name != nil {
			w.edits.replace(name, bare("!!str", key))
		} else {
			w.edits.put(n, f.name, bare("!!str", key))
		}
		number := bare("!!int", value)
		if quantity.ShortTag() == "!!str" {
			number = text(value)
		}
		w.edits.replace(quantity, number)
	}
	for _, key := range drop {
		w.edits.drop(find(n, key).owner, key)
	}
	for _, s := range change.Differences {
		w.say(in, "%s", s)
	}
}

// sparkVendor is Spark's setting with the domain of the GPU resource.
var sparkVendor = regexp.MustCompile(`^spark\.(driver|executor)\.resource\.gpu\.vendor$`)

// spark has Spark's settings request whole GPUs of Kerf: Spark appends /gpu to the vendor.
func (w *walk) spark(n *yaml.Node, in object) {
	name, ok := w.options.Quota(wholeGPU)
	if !ok || name != sharing.ResourceGPU || w.options.ByClaim != nil {
		return
	}
	found := false
	for _, e := range entries(n) {
		if sparkVendor.MatchString(e.key.Value) && scalar(e.value) == "nvidia.com" {
			w.edits.replace(e.value, bare("!!str", sharing.Domain))
			found = true
		}
	}
	if found {
		w.result.Pods++
		w.result.Changed++
		w.changed = append(w.changed, in)
	}
}

// own is true for a request in fields that only this API has: gpu among the resources, or values of a chart.
func own(n *yaml.Node, key string, value *yaml.Node, path string) bool {
	parent := path[strings.LastIndexByte(path, '.')+1:]
	name := ""
	switch {
	case key == "gpu" && slices.Contains([]string{"resources", "limits", "requests"}, parent):
		name = scalar(get(n, "gpuType"))
	case strings.HasPrefix(key, "requestGPU") && key != "requestGPUType", strings.HasPrefix(key, "limitGPU"):
		name = scalar(get(n, "requestGPUType"))
	default:
		return false
	}
	return !strings.HasPrefix(name, sharing.Domain+"/") && (isMapping(value) || some(value))
}

// some is true for an amount that is not zero.
func some(n *yaml.Node) bool {
	return n != nil && n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" && n.Value != "" && n.Value != "0"
}
