// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package parted

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// follow is what an alias stands for, or the node itself.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// open is follow, but refuses more values than a document may have and nodes of another kind.
func (r *reader) open(n *yaml.Node, field string, kind yaml.Kind, want string) (*yaml.Node, bool) {
	to := follow(n)
	if r.values += 1 + len(to.Content); r.values > maxValues {
		if !r.past {
			r.past = true
			r.bad(n, field, "", "split the document", "is past the %d values that are read", maxValues)
		}
		return nil, false
	}
	if to.Kind != kind {
		r.bad(n, field, "", "write "+want, "is not %s", want)
		return nil, false
	}
	return to, true
}

// mapping calls do for each pair of a mapping; a key that stands twice is a mistake, and the first one holds.
func (r *reader) mapping(n *yaml.Node, field string, do func(name string, key, value *yaml.Node)) {
	n, ok := r.open(n, field, yaml.MappingNode, "a mapping of fields")
	if !ok {
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind != yaml.ScalarNode || key.Value == "":
			r.bad(key, field, "", "write a name", "has a field without a name")
		case seen[key.Value]:
			r.bad(key, field+"."+key.Value, "", "take one of them out", "is there twice")
		default:
			seen[key.Value] = true
			do(key.Value, key, n.Content[i+1])
		}
	}
	if len(n.Content) == 0 && field == "mig-configs" {
		r.bad(n, field, "", "name at least one config", "is empty")
	}
}

// list calls do for each item of a list that must not be empty.
func (r *reader) list(n *yaml.Node, field string, do func(field string, n *yaml.Node)) {
	if to := follow(n); to.Kind == yaml.SequenceNode && len(to.Content) == 0 {
		r.bad(n, field, "", "write at least one entry", "is empty")
		return
	}
	r.items(n, field, do)
}

func (r *reader) items(n *yaml.Node, field string, do func(field string, n *yaml.Node)) {
	if n, ok := r.open(n, field, yaml.SequenceNode, "a list"); ok {
		for i, item := range n.Content {
			do(fmt.Sprintf("%s[%d]", field, i), item)
		}
	}
}

// text is a single value; "" where it is none.
func (r *reader) text(n *yaml.Node, field string) string {
	if n, ok := r.open(n, field, yaml.ScalarNode, "a single value"); ok {
		return n.Value
	}
	return ""
}

// texts calls do for a single text that is not empty, or for each of a list.
func (r *reader) texts(n *yaml.Node, field string, do func(n *yaml.Node, field, s string)) {
	if follow(n).Kind == yaml.ScalarNode {
		if s := r.text(n, field); s != "" {
			do(n, field, s)
		}
		return
	}
	r.items(n, field, func(field string, n *yaml.Node) { do(n, field, r.text(n, field)) })
}
