// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/translate"
)

// amount translates a resource that is written as a name and a quantity, as in a SparkApplication.
func (w *walk) amount(n *yaml.Node, in object) {
	name, quantity := get(n, "name"), get(n, "quantity")
	if name == nil || quantity == nil || !foreign(scalar(name)) || w.options.ByClaim != nil {
		return // the list of what stays has it
	}
	change, err := w.options.Pod(translate.Pod{Containers: []translate.Container{{Name: "main",
		Limits: map[string]string{scalar(name): w.options.Decimal(scalar(quantity))}}}})
	if err != nil {
		w.errs = append(w.errs, fmt.Errorf("%v: %w", in, err))
		return
	}
	if len(change.Limits["main"]) != 1 || len(change.Annotations) > 0 {
		return // the list of what stays has it
	}
	w.result.Pods++
	w.result.Changed++
	w.changed = append(w.changed, in)
	for key, value := range change.Limits["main"] {
		w.edits.replace(name, bare("!!str", key))
		w.edits.replace(quantity, bare("!!int", value))
	}
	for _, s := range change.Differences {
		w.say(in, "%s", s)
	}
}

// quotas are the kinds that bound the requests of others.
func quotas() []string {
	return []string{"ClusterQueue", "ClusterResourceQuota", "Cohort", "LimitRange", "PodGroup", "Queue",
		"ResourceQuota"}
}

// quota renames whole GPUs and MIG instances in quotas. The amounts of shares are other units, and stay.
func (w *walk) quota(n *yaml.Node, in object) {
	if n != in.node || !slices.Contains(quotas(), in.kind) || w.options.ByClaim != nil {
		return
	}
	names := map[*yaml.Node]string{}
	exact := true
	words(get(n, "spec"), 0, map[*yaml.Node]bool{}, func(scalar *yaml.Node) {
		if resource := unprefixed(scalar.Value); foreign(resource) {
			prefix := strings.TrimSuffix(scalar.Value, resource)
			name, ok := w.options.Quota(resource)
			names[scalar], exact = prefix+name, exact && ok
		}
	})
	if len(names) == 0 || !exact {
		return
	}
	for scalar, name := range names {
		w.edits.replace(scalar, bare("!!str", name))
	}
	w.say(in, "counts whole GPUs and MIG instances; shares count as %s and %s", sharing.ResourceMemory,
		sharing.ResourcePercent)
}

// words calls a function for each scalar of a tree, also keys.
func words(n *yaml.Node, depth int, seen map[*yaml.Node]bool, each func(*yaml.Node)) {
	n = deref(n)
	if n == nil || seen[n] || depth > deepest {
		return
	}
	seen[n] = true
	if n.Kind == yaml.ScalarNode {
		each(n)
	}
	for _, c := range n.Content {
		words(c, depth+1, seen, each)
	}
}
