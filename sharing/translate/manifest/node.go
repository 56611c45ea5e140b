// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// get is the value of a key, nil where there is none.
func get(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			if v := n.Content[i+1]; v.Kind != yaml.AliasNode {
				return v
			}
			return nil // written once and used twice: not to be changed in one place
		}
	}
	return nil
}

// list are the items of a sequence.
func list(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return slices.Clone(n.Content)
}

func scalar(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// texts are the pairs of a mapping whose values are scalars.
func texts(n *yaml.Node) map[string]string {
	out := map[string]string{}
	if n == nil || n.Kind != yaml.MappingNode {
		return out
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if v := n.Content[i+1]; v.Kind == yaml.ScalarNode {
			out[n.Content[i].Value] = v.Value
		}
	}
	return out
}

// remove takes a key off.
func remove(n *yaml.Node, key string) {
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content = slices.Delete(n.Content, i, i+2)
			return
		}
	}
}

// child is the mapping at a key, made where there is none.
func child(n *yaml.Node, key string) *yaml.Node {
	if c := get(n, key); c != nil && c.Kind == yaml.MappingNode {
		return c
	}
	remove(n, key)
	c := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, c)
	return c
}

// set writes pairs, as text: Kubernetes takes quantities so, and annotations must be.
func set(n *yaml.Node, pairs map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		remove(n, key)
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key},
			&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: pairs[key]})
	}
}

// prune takes a mapping off that has nothing in it.
func prune(n *yaml.Node, key string) {
	if c := get(n, key); c != nil && c.Kind == yaml.MappingNode && len(c.Content) == 0 {
		remove(n, key)
	}
}
