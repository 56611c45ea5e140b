// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package imports reads the sharing configuration of other tools, and says the same as a SharingConfig: the
// configuration of NVIDIA's device plugin, and those of HAMi and of Volcano's vGPU plugin, also in their ConfigMaps.
//
// It promises that each setting is carried over, or named. A named setting is left out, with the reason, or has no
// counterpart, and then there is no result. It reads no file and asks no GPU: these configurations do not say what a
// GPU is.
package imports

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// MaxSize bounds the input, in bytes.
const MaxSize = 1 << 20

// Result is a SharingConfig, and what is to be known of how it came about.
type Result struct {
	Config config.Config
	// Differences has a sentence for each thing that is left out, or is not exactly as it was.
	Differences []string
}

// Parse reads a configuration of either kind, YAML or JSON, and recognizes the kind by its content. Every problem is in
// the error, each with its line, and wraps sharing.ErrInvalid.
func Parse(text []byte) (Result, error) {
	if len(text) > MaxSize {
		return Result{}, fmt.Errorf("the configuration is larger than %d bytes: %w", MaxSize, sharing.ErrInvalid)
	}
	r := &reader{}
	var out config.Spec
	texts, isConfigMap := Texts(text)
	if isConfigMap {
		out = r.configMap(texts)
	} else {
		var err error
		if out, err = r.read(text); err != nil {
			return Result{}, err
		}
	}
	if err := errors.Join(r.errs...); err != nil {
		return Result{}, err
	}
	c, err := config.New(out)
	if err != nil {
		return Result{}, fmt.Errorf("the configuration made of it: %w", err)
	}
	return Result{Config: c, Differences: r.said}, nil
}

// kinds of configurations.
const (
	kindUnknown = iota
	kindNVIDIA
	kindHAMi
)

// read reads one configuration.
func (r *reader) read(text []byte) (out config.Spec, err error) {
	var root yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&root); err != nil {
		return out, fmt.Errorf("read the configuration: %w (%w)", err, sharing.ErrInvalid)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return out, fmt.Errorf("the configuration has more than one part: write one at a time: %w", sharing.ErrInvalid)
	}
	r.flatten(&root, "", 0)
	switch {
	case r.has("nodeconfig"):
		r.kind, out = kindHAMi, r.hamiNodes()
	case r.has("nvidia"):
		r.kind, out = kindHAMi, r.hamiDevices()
	case r.has("version") || r.has("flags") || r.has("sharing"):
		r.kind, out = kindNVIDIA, r.nvidia()
	default:
		r.bad(leaf{}, "give NVIDIA's device-plugin config, or HAMi's device-config.yaml or config.json",
			"is none that is known")
	}
	return out, errors.Join(r.errs...)
}

// leaf is one value of the input. Its path has [] for each index: sharing.timeSlicing.resources[].replicas.
type leaf struct {
	path, value string
	line        int
	// at are the indexes of the path.
	at []int
}

// reader is one document on its way.
type reader struct {
	leaves []leaf
	said   []string
	errs   []error
	kind   int
}

// deepest and mostLeaves bound a hostile document.
const (
	deepest    = 12
	mostLeaves = 10000
)

func (r *reader) flatten(n *yaml.Node, path string, depth int, at ...int) {
	if depth > deepest || len(r.leaves) > mostLeaves {
		r.bad(leaf{path: path, line: n.Line}, "write the configuration of one of these tools",
			"is too deep, or too long")
		return
	}
	switch n.Kind {
	case yaml.DocumentNode:
		for _, c := range n.Content {
			r.flatten(c, path, depth+1, at...)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			r.flatten(n.Content[i+1], strings.TrimPrefix(path+"."+n.Content[i].Value, "."), depth+1, at...)
		}
	case yaml.SequenceNode:
		for i, c := range n.Content {
			r.flatten(c, path+"[]", depth+1, append(slices.Clone(at), i)...)
		}
	case yaml.AliasNode:
		r.bad(leaf{path: path, line: n.Line}, "write it out", "is an alias, which is not read")
	default:
		r.leaves = append(r.leaves, leaf{path, n.Value, n.Line, at})
	}
}

// has reports whether the input has a path, or anything below it.
func (r *reader) has(path string) bool {
	return slices.ContainsFunc(r.leaves, func(l leaf) bool {
		return l.path == path || strings.HasPrefix(l.path, path+".") || strings.HasPrefix(l.path, path+"[")
	})
}

// value is that of a path, at the same place of its lists where at says so; empty where there is none.
func (r *reader) value(path string, at ...int) leaf {
	for _, l := range r.leaves {
		if l.path == path && slices.Equal(l.at, at) {
			return l
		}
	}
	return leaf{path: path}
}

func (r *reader) bad(l leaf, remedy, problem string) {
	field := l.path
	if field == "" {
		field = "the configuration"
	}
	r.errs = append(r.errs, config.Error{Line: l.line, What: sharing.Invalid(field, l.value, remedy, "%s", problem)})
}

func (r *reader) say(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

// rule is what becomes of a value that is not carried over.
type rule struct {
	path string
	// plain are the values that say nothing: defaults.
	plain []string
	// left is why it is left out; refused is what is to be done where it has no counterpart. One of them is set.
	left, refused string
}

// apply names each value that no rule and no caller knows, and does what the rules say. The caller reads the paths
// carried itself.
func (r *reader) apply(rules []rule, carried ...string) {
	for _, l := range r.leaves {
		i := slices.IndexFunc(rules, func(x rule) bool { return x.path == l.path })
		switch {
		case slices.Contains(carried, l.path):
		case i < 0:
			r.bad(l, "take it out, if it is to be left out", "is not known here")
		case slices.Contains(rules[i].plain, l.value):
		case rules[i].refused != "":
			r.bad(l, rules[i].refused, "has no counterpart")
		default:
			r.say("%s %s is left out: %s", l.path, l.value, rules[i].left)
		}
	}
}
