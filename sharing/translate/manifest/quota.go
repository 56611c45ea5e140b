// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

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
	every(n, depth, seen, func(n *yaml.Node) {
		if n.Kind == yaml.ScalarNode {
			each(n)
		}
	})
}

// every calls a function for each node of a tree.
func every(n *yaml.Node, depth int, seen map[*yaml.Node]bool, each func(*yaml.Node)) {
	n = deref(n)
	if n == nil || seen[n] || depth > deepest {
		return
	}
	seen[n] = true
	each(n)
	for _, c := range n.Content {
		every(c, depth+1, seen, each)
	}
}
