// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

// Decode reads a document, YAML or JSON. Unknown and doubled fields, wrong types, anchors and aliases, tags,
// a second document and another version are mistakes, as is whatever New refuses. The error is
// Mistakes, and then nothing of the document is returned.
func Decode(data []byte) (Config, error) {
	root, mistakes := parse(data)
	if root == nil {
		return Config{}, mistakes
	}
	r := reader{mistakes: mistakes, lines: map[string]int{}}
	doc, known := r.document(root)
	if known {
		var meaning Mistakes
		for _, m := range check(doc) {
			if !r.hides(m.What.Field) {
				m.Line = r.line(m.What.Field)
				meaning = append(meaning, m)
			}
		}
		r.mistakes = append(r.mistakes, meaning...)
	}
	if len(r.mistakes) > 0 {
		return Config{}, r.mistakes.sorted()
	}
	return Config{doc: doc.clone()}, nil
}

// parse returns the document's root, nil when there is none, and what is wrong with the text.
func parse(data []byte) (*yaml.Node, Mistakes) {
	whole := func(remedy, problem string, args ...any) Mistakes {
		return Mistakes{{What: sharing.Invalid("the document", "", remedy, problem, args...)}}
	}
	if len(data) > MaxSize {
		return nil, whole("split it, or leave comments out", "is larger than %d bytes", MaxSize)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var root yaml.Node
	err := decoder.Decode(&root)
	switch {
	case errors.Is(err, io.EOF):
		return nil, whole("begin with apiVersion: "+APIVersion, "is empty")
	case err != nil:
		return nil, syntax(err)
	case root.Kind != yaml.DocumentNode || len(root.Content) != 1 || root.Content[0].ShortTag() == "!!null":
		return nil, whole("begin with apiVersion: "+APIVersion, "is empty")
	}
	var second yaml.Node
	if err := decoder.Decode(&second); err == nil {
		return root.Content[0], Mistakes{{Line: second.Line, What: sharing.Invalid("the document", "", "put all in the first document", "is followed by another one")}}
	} else if !errors.Is(err, io.EOF) {
		return root.Content[0], syntax(err)
	}
	return root.Content[0], nil
}

// syntax turns the parser's error into a mistake, with the line that its text names. The library counts
// that line from 0 or from 1, depending on which of its parts found the error.
func syntax(err error) Mistakes {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, after, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(number); err == nil {
				line, text = n, after
			}
		}
	}
	return Mistakes{{Line: line, What: sharing.Invalid("the document", "", "mend the syntax", "is not YAML, here or in the next line: %s", text)}}
}

// document reads the head, and the rest when the head is one that this version knows.
func (r *reader) document(n *yaml.Node) (doc Document, known bool) {
	var version, kind string
	var spec *yaml.Node
	r.mapping("", n, fields{
		"apiVersion": func(path string, n *yaml.Node) { version = r.text(path, n) },
		"kind":       func(path string, n *yaml.Node) { kind = r.text(path, n) },
		"spec":       func(_ string, n *yaml.Node) { spec = n },
	})
	if version != APIVersion && !r.hides("apiVersion") {
		r.missingOr("apiVersion", version, "write "+APIVersion, "is not a version that is known here")
	}
	if kind != Kind && !r.hides("kind") {
		r.missingOr("kind", kind, "write "+Kind, "is not the kind of document that is read here")
	}
	if version != APIVersion || kind != Kind {
		return Document{}, false // what the rest means is not known
	}
	if spec == nil {
		r.missingOr("spec", "", "write spec: with pools below", "")
		return Document{}, false
	}
	r.mapping("spec", spec, fields{
		"pools": func(path string, n *yaml.Node) {
			r.list(path, n, func(path string, n *yaml.Node) { doc.Pools = append(doc.Pools, r.pool(path, n)) })
		},
		"prices": func(path string, n *yaml.Node) { doc.Prices = r.prices(path, n) },
		"profiles": func(path string, n *yaml.Node) {
			r.list(path, n, func(path string, n *yaml.Node) { doc.Profiles = append(doc.Profiles, r.profile(path, n)) })
		},
	})
	return doc, true
}

func (r *reader) missingOr(path, value, remedy, problem string) {
	if value == "" {
		problem = "is missing"
	}
	r.note(r.line(path), sharing.Invalid(path, value, remedy, "%s", problem))
}

func (r *reader) pool(path string, n *yaml.Node) (p Pool) {
	r.mapping(path, n, fields{
		"name":           func(path string, n *yaml.Node) { p.Name = r.text(path, n) },
		"nodeSelector":   func(path string, n *yaml.Node) { p.NodeSelector = r.labels(path, n) },
		"mode":           func(path string, n *yaml.Node) { p.Mode = parsed(r, path, n, ParseMode) },
		"place":          func(path string, n *yaml.Node) { p.Place = parsed(r, path, n, sharing.ParseSpread) },
		"minEnforcement": func(path string, n *yaml.Node) { p.MinLevel = parsed(r, path, n, sharing.ParseLevel) },
		"backends":       func(path string, n *yaml.Node) { p.Backends = r.backends(path, n) },
		"overCap":        func(path string, n *yaml.Node) { p.OverCap = parsed(r, path, n, ParseOverCap) },
		"mpsSharing":     func(path string, n *yaml.Node) { p.MPSSharing = parsed(r, path, n, ParseMPSSharing) },
		"strangers":      func(path string, n *yaml.Node) { p.Strangers = parsed(r, path, n, ParseStrangers) },
		"health":         func(path string, n *yaml.Node) { p.Health = r.health(path, n) },
		"idle":           func(path string, n *yaml.Node) { p.Idle = r.idle(path, n) },
		"compute":        func(path string, n *yaml.Node) { p.Compute = parsed(r, path, n, ParseCompute) },
		"timeSlice":      func(path string, n *yaml.Node) { p.TimeSlice = parsed(r, path, n, sharing.ParseTimeSlice) },
		"computeMode":    func(path string, n *yaml.Node) { p.ComputeMode = parsed(r, path, n, parseComputeMode) },
		"mig":            func(path string, n *yaml.Node) { p.MIG = r.layouts(path, n) },
		"migKeepWarm":    func(path string, n *yaml.Node) { p.MIGKeepWarm = parsed(r, path, n, parseWarm) },
		"migReset":       func(path string, n *yaml.Node) { p.MIGReset = r.flag(path, n) },
		"profiles":       func(path string, n *yaml.Node) { p.Profiles = r.texts(path, n) },
	})
	return p
}

func (r *reader) profile(path string, n *yaml.Node) (p Profile) {
	r.mapping(path, n, fields{
		"name":           func(path string, n *yaml.Node) { p.Name = r.text(path, n) },
		"memory":         func(path string, n *yaml.Node) { p.Memory = r.size(path, n) },
		"percent":        func(path string, n *yaml.Node) { p.Percent = counted(r, path, n, sharing.ParsePercent) },
		"gpus":           func(path string, n *yaml.Node) { p.GPUs = counted(r, path, n, sharing.ParseGPUs) },
		"burstMax":       func(path string, n *yaml.Node) { p.Burst = parsed(r, path, n, sharing.ParseBurst) },
		"gpuModel":       func(path string, n *yaml.Node) { p.Models = r.texts(path, n) },
		"minEnforcement": func(path string, n *yaml.Node) { p.MinLevel = parsed(r, path, n, sharing.ParseLevel) },
		"backends":       func(path string, n *yaml.Node) { p.Backends = r.backends(path, n) },
		"overCap":        func(path string, n *yaml.Node) { p.OverCap = parsed(r, path, n, ParseOverCap) },
		"place":          func(path string, n *yaml.Node) { p.Place = parsed(r, path, n, sharing.ParseSpread) },
		"priority":       func(path string, n *yaml.Node) { p.Priority = counted(r, path, n, ParsePriority) },
	})
	return p
}

func (r *reader) backends(path string, n *yaml.Node) []Backend {
	out := []Backend{}
	r.list(path, n, func(path string, n *yaml.Node) { out = append(out, parsed(r, path, n, ParseBackend)) })
	return out
}

// join appends a field's name to a path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// at appends a position to a path.
func at(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
