// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// deref follows an alias to its anchor.
func deref(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// isMapping is true for a mapping, also an empty one.
func isMapping(n *yaml.Node) bool { return n != nil && n.Kind == yaml.MappingNode }

// entry is one key of a mapping. Its owner is that mapping, or one that a merge key includes.
type entry struct{ owner, key, value *yaml.Node }

// entries are the keys of a mapping with those of its merge keys. The first entry of a key counts.
func entries(n *yaml.Node) []entry { return entriesOf(deref(n), map[*yaml.Node]bool{}) }

func entriesOf(n *yaml.Node, seen map[*yaml.Node]bool) (out []entry) {
	if !isMapping(n) || seen[n] { // a merge key can include its own mapping
		return nil
	}
	seen[n] = true
	var merged []entry
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], deref(n.Content[i+1])
		switch {
		case key.Tag != "!!merge":
			out = append(out, entry{n, key, value})
		case value != nil && value.Kind == yaml.SequenceNode:
			for _, one := range value.Content {
				merged = append(merged, entriesOf(deref(one), seen)...)
			}
		default:
			merged = append(merged, entriesOf(value, seen)...)
		}
	}
	return append(out, merged...)
}

// find is the entry of a key. Its value is nil if there is none.
func find(n *yaml.Node, key string) entry {
	n = deref(n)
	if !isMapping(n) {
		return entry{}
	}
	merges := false
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Tag == "!!merge" {
			merges = true
		} else if k.Value == key {
			return entry{n, k, deref(n.Content[i+1])}
		}
	}
	if !merges {
		return entry{}
	}
	for _, e := range entries(n) {
		if e.key.Value == key {
			return e
		}
	}
	return entry{}
}

// get is the value of a key, nil where there is none.
func get(n *yaml.Node, key string) *yaml.Node { return find(n, key).value }

// list are the items of a sequence, without aliases.
func list(n *yaml.Node) (out []*yaml.Node) {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	for _, item := range n.Content {
		out = append(out, deref(item))
	}
	return out
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
	for _, e := range entries(n) {
		if _, known := out[e.key.Value]; !known && e.value != nil && e.value.Kind == yaml.ScalarNode &&
			e.value.ShortTag() != "!!null" {
			out[e.key.Value] = e.value.Value
		}
	}
	return out
}

// same is true for two trees with the same data in the same order.
func same(a, b *yaml.Node, depth int) bool {
	if a == nil || b == nil || depth > deepest+deepest {
		return a == b
	}
	if a.Kind == yaml.AliasNode || b.Kind == yaml.AliasNode {
		return a.Kind == b.Kind && a.Value == b.Value
	}
	if a.Kind != b.Kind || a.Value != b.Value || a.Anchor != b.Anchor || a.ShortTag() != b.ShortTag() {
		return false
	}
	return slices.EqualFunc(a.Content, b.Content, func(x, y *yaml.Node) bool { return same(x, y, depth+1) })
}
