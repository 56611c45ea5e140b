// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// edits are the changes of a file. The text of all other nodes stays.
type edits struct {
	mappings map[*yaml.Node]*edit
	// scalars are replaced; the new one is in the tree already when the text is written.
	scalars map[*yaml.Node]*yaml.Node
	// parents has where a mapping is, to remove one that becomes empty.
	parents map[*yaml.Node]entry
	// gone are mappings that leave with an entry of their parent.
	gone map[*yaml.Node]bool
	// conflict is true if one mapping needs two different changes.
	conflict bool
}

// edit is the change of one mapping. What it puts takes the place of the first entry that it drops.
type edit struct {
	drop []string
	put  map[string]*yaml.Node
	// index is where new entries go if it drops none.
	index int
}

func newEdits() *edits {
	return &edits{mappings: map[*yaml.Node]*edit{}, scalars: map[*yaml.Node]*yaml.Node{},
		parents: map[*yaml.Node]entry{}, gone: map[*yaml.Node]bool{}}
}

func (s *edits) of(n *yaml.Node) *edit {
	e, ok := s.mappings[n]
	if !ok {
		e = &edit{put: map[string]*yaml.Node{}}
		s.mappings[n] = e
	}
	return e
}

func (s *edits) drop(n *yaml.Node, key string) {
	if e := s.of(n); !slices.Contains(e.drop, key) {
		e.drop = append(e.drop, key)
	}
}

func (s *edits) put(n *yaml.Node, key string, value *yaml.Node) {
	e := s.of(n)
	if was, ok := e.put[key]; ok && render(was, true) != render(value, true) {
		s.conflict = true
	}
	if get(n, key) != nil {
		s.drop(n, key)
	}
	e.put[key] = value
}

// replace gives a scalar another value.
func (s *edits) replace(n, value *yaml.Node) {
	if was, ok := s.scalars[n]; ok && was.Value != value.Value {
		s.conflict = true
	}
	if value.Tag == "!!str" && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		value = text(value.Value)
	}
	s.scalars[n] = value
}

// below puts pairs into the mapping at the end of a path, and makes the mappings that are missing.
func (s *edits) below(n *yaml.Node, pairs map[string]string, path ...string) {
	for i, key := range path {
		next := find(n, key)
		if !isMapping(next.value) {
			value := mapping(pairs)
			for _, outer := range slices.Backward(path[i+1:]) {
				value = mappingOf(outer, value)
			}
			s.put(n, key, value)
			return
		}
		n = next.value
	}
	for key, value := range pairs {
		s.put(n, key, text(value))
	}
}

// prune removes mappings that become empty, up to where one stays.
func (s *edits) prune() {
	for again := true; again; {
		again = false
		for _, n := range slices.Collect(maps.Keys(s.mappings)) {
			up, known := s.parents[n]
			if known && !s.gone[n] && n.Anchor == "" && s.empties(n) {
				s.gone[n], again = true, true
				s.drop(up.owner, up.key.Value)
			}
		}
	}
}

func (s *edits) empties(n *yaml.Node) bool {
	e := s.mappings[n]
	if len(e.put) > 0 || len(e.drop) == 0 {
		return false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if !slices.Contains(e.drop, n.Content[i].Value) {
			return false
		}
	}
	return true
}

// apply changes the trees.
func (s *edits) apply() {
	for n, e := range s.mappings {
		var out []*yaml.Node
		done := len(e.put) == 0
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !e.drops(n.Content[i]) {
				out = append(out, n.Content[i], n.Content[i+1])
			} else if !done {
				done, out = true, append(out, e.nodes()...)
			}
		}
		if !done {
			out = slices.Insert(out, e.index, e.nodes()...)
		}
		n.Content = out
	}
	for n, value := range s.scalars {
		n.Value, n.Tag = value.Value, value.Tag
	}
}

func (e *edit) drops(key *yaml.Node) bool {
	return key.Tag != "!!merge" && slices.Contains(e.drop, key.Value)
}

func (e *edit) nodes() (out []*yaml.Node) {
	for _, key := range slices.Sorted(maps.Keys(e.put)) {
		out = append(out, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, e.put[key])
	}
	return out
}

// text is a scalar that is a string.
func text(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: value}
}

// bare is a scalar that is written without quotes: a word or a number.
func bare(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

func mapping(pairs map[string]string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Style: yaml.FlowStyle}
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		n.Content = append(n.Content, bare("!!str", key), text(pairs[key]))
	}
	return n
}

func mappingOf(key string, value *yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Style: yaml.FlowStyle,
		Content: []*yaml.Node{bare("!!str", key), value}}
}

// word is what YAML reads as a string without quotes.
var word = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*[./-][A-Za-z0-9._/-]*$`)

// render writes a node in one line of YAML, or of JSON.
func render(n *yaml.Node, isJSON bool) string {
	if n.Kind == yaml.ScalarNode {
		plain := n.Tag != "!!str" || !isJSON && n.Style == 0 && (word.MatchString(n.Value) || plainKey(n.Value))
		if plain {
			return n.Value
		}
		quoted, _ := json.Marshal(n.Value) // a string always encodes, and YAML reads it as JSON does
		return string(quoted)
	}
	if n.Kind == yaml.SequenceNode {
		var items []string
		for _, item := range n.Content {
			items = append(items, render(item, isJSON))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	if n.Kind == yaml.AliasNode {
		return "*" + n.Value
	}
	var pairs []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		pairs = append(pairs, render(n.Content[i], isJSON)+": "+render(n.Content[i+1], isJSON))
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

// plainKey is true for the keys of Kubernetes that the edits put.
func plainKey(key string) bool {
	return slices.Contains([]string{"annotations", "claims", "computeResources", claimName, "limits", "metadata",
		"name", "requestGPUType", "resourceClaimName", "resourceClaimTemplateName", "resourceClaims", "resources",
		"resourcesPerNode"}, key)
}
