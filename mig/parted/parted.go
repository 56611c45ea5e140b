// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package parted reads the configuration of NVIDIA's mig-parted. It says what each of its named configs means for a
// GPU: MIG on or off, and which instances.
//
// It accepts what mig-parted accepts: version v1, device filters with and without subsystem, device lists, profile
// names. It rejects what mig-parted rejects and reports all errors with their lines. It also rejects names of compute
// instances (1c.3g.20gb), because Kerf divides an instance in another way. YAML anchors and merge keys work.
//
// It reads no file and changes no GPU. Where an instance goes is decided by package plan; mig-parted has no word for
// it either.
package parted

import (
	"fmt"
	"maps"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// File is the content of a file.
type File struct {
	// Configs are in the file's order; their names differ.
	Configs []Config
}

// Config is one named config.
type Config struct {
	Name    string
	Entries []Entry // at least one
}

// Entry says what some of the GPUs should have.
type Entry struct {
	// Filters are the products that are meant; none means all.
	Filters []Filter
	// All means every GPU of a node; otherwise it is those of the NVML indexes in Devices.
	All     bool
	Devices []int
	// Enabled is MIG mode.
	Enabled bool
	// Instances are in the file's order; none where Enabled is false.
	Instances []Count
	// field is the path of mig-devices, for errors.
	field string
}

// Count is a number of instances of one profile.
type Count struct {
	Wish mig.Wish
	N    int // not negative
}

// Filter is a product by its PCI ids, each with the device in the upper and the vendor in the lower 16 bits.
type Filter struct {
	Device uint32
	// Subsystem is 0 where every board with the device is meant.
	Subsystem uint32
}

// Config returns the config of that name. The error is a *sharing.FieldError that lists those that there are.
func (d File) Config(field, name string) (Config, error) {
	names := make([]string, len(d.Configs))
	for i, c := range d.Configs {
		if c.Name == name {
			return c, nil
		}
		names[i] = c.Name
	}
	return Config{}, sharing.Invalid(field, name, "write one of "+strings.Join(names, ", "),
		"is no config of the file")
}

// follow is what an alias stands for, or the node itself.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// open is follow, but refuses more values than a file may have and nodes of another kind.
func (r *reader) open(n *yaml.Node, field string, kind yaml.Kind, want string) (*yaml.Node, bool) {
	to := follow(n)
	if r.values += 1 + len(to.Content); r.values > maxValues {
		if !r.past {
			r.past = true
			r.bad(n, field, "", "split the file", "is past the %d values that are read", maxValues)
		}
		return nil, false
	}
	if to.Kind != kind {
		r.bad(n, field, "", "write "+want, "is not %s", want)
		return nil, false
	}
	return to, true
}

// mapping calls do for each pair of a mapping. A repeated key is an error, and its first value counts. Then come
// pairs of merged mappings (<<), except keys that were there before.
func (r *reader) mapping(n *yaml.Node, field string, do func(name string, key, value *yaml.Node)) {
	r.pairs(n, field, map[string]bool{}, do)
}

func (r *reader) pairs(n *yaml.Node, field string, before map[string]bool,
	do func(name string, key, value *yaml.Node)) {
	n, ok := r.open(n, field, yaml.MappingNode, "a mapping of fields")
	if !ok {
		return
	}
	seen := map[string]bool{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind == yaml.ScalarNode && key.Tag == mergeTag:
			merged = append(merged, n.Content[i+1])
		case key.Kind == yaml.ScalarNode && before[key.Value]:
		case key.Kind != yaml.ScalarNode || key.Value == "":
			r.bad(key, field, "", "write a name", "has a field without a name")
		case seen[key.Value]:
			r.bad(key, field+"."+key.Value, "", "take one of them out", "is there twice")
		default:
			seen[key.Value] = true
			do(key.Value, key, n.Content[i+1])
		}
	}
	maps.Copy(seen, before)
	for _, m := range merged {
		r.merge(m, field, seen, do)
	}
	maps.Copy(before, seen)
	if len(n.Content) == 0 && field == "mig-configs" {
		r.bad(n, field, "", "name at least one config", "is empty")
	}
}

// merge is pairs of what a merge key names. That is a mapping, or a list of them; the first one with a key counts.
func (r *reader) merge(n *yaml.Node, field string, before map[string]bool,
	do func(name string, key, value *yaml.Node)) {
	if follow(n).Kind != yaml.SequenceNode {
		r.pairs(n, field+".<<", before, do)
		return
	}
	r.items(n, field+".<<", func(field string, n *yaml.Node) { r.pairs(n, field, before, do) })
}

// mergeTag is the tag of the key << of YAML 1.1.
const mergeTag = "!!merge"

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
