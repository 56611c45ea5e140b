// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package change

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// Difference is one field that two configs set differently.
type Difference struct {
	// Path names the field; a pool and a profile by name: pools[default].onOverCap.
	Path string `json:"path"`
	// Before and After are empty if a config does not set the field.
	Before string `json:"before"`
	After  string `json:"after"`
}

// String is one line.
func (d Difference) String() string {
	switch {
	case d.Before == "":
		return "+ " + d.Path + ": " + d.After
	case d.After == "":
		return "- " + d.Path + ": " + d.Before
	}
	return "~ " + d.Path + ": " + d.Before + " -> " + d.After
}

// Between returns the differences of two configs, by path. Order of fields, comments, and how amounts are written make
// none.
func Between(from, to config.Config) ([]Difference, error) {
	before, err := flat(from)
	if err != nil {
		return nil, err
	}
	after, err := flat(to)
	if err != nil {
		return nil, err
	}
	paths := map[string]bool{}
	for _, m := range []map[string]string{before, after} {
		for p := range m {
			paths[p] = true
		}
	}
	var out []Difference
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		if before[p] != after[p] {
			out = append(out, Difference{p, before[p], after[p]})
		}
	}
	return out, nil
}

// flat is every value of a config by its path.
func flat(c config.Config) (map[string]string, error) {
	text, err := c.Encode()
	if err != nil {
		return nil, fmt.Errorf("compare configs: %w", err)
	}
	var root struct {
		Spec yaml.Node `yaml:"spec"`
	}
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("compare configs: %w", err)
	}
	out := map[string]string{}
	flatten("", &root.Spec, out)
	return out, nil
}

func flatten(path string, n *yaml.Node, out map[string]string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			flatten(strings.TrimPrefix(path+"."+n.Content[i].Value, "."), n.Content[i+1], out)
		}
	case yaml.SequenceNode:
		var plain []string
		for i, item := range n.Content {
			if item.Kind == yaml.ScalarNode {
				plain = append(plain, item.Value)
				continue
			}
			flatten(fmt.Sprintf("%s[%s]", path, keyOf(item, i)), item, out)
		}
		if len(plain) > 0 {
			out[path] = "[" + strings.Join(plain, ", ") + "]"
		}
	case yaml.ScalarNode:
		if out[path] = n.Value; n.Value == "" {
			out[path] = `""`
		}
	case yaml.DocumentNode, yaml.AliasNode:
	}
}

// keyOf names an entry of a list: by its name where it has one.
func keyOf(item *yaml.Node, i int) string {
	for k := 0; k+1 < len(item.Content); k += 2 {
		if item.Content[k].Value == "name" {
			return item.Content[k+1].Value
		}
	}
	return fmt.Sprint(i)
}
