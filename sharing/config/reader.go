// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

// reader walks a config's nodes by hand, since the library's own decoding stops at the first error, follows aliases,
// and knows no field paths.
type reader struct {
	// name is the file's, and root begins every path of it; both are empty if the config is one text.
	name, root string
	mistakes   Errors
	// lines has the line of every path that was read.
	lines map[string]int
}

func (r *reader) note(line int, what *sharing.FieldError) {
	if !r.mistakes.full() {
		r.mistakes = append(r.mistakes, Error{Line: line, What: what})
	}
}

// bounded refuses a list or mapping with too many entries, of which nothing is read.
func (r *reader) bounded(path string, n *yaml.Node, entries int) bool {
	if entries > maxEntries {
		r.bad(path, n, "", "write fewer", "has %d entries; the most are %d", entries, maxEntries)
	}
	return entries <= maxEntries && !r.mistakes.full()
}

func (r *reader) bad(path string, n *yaml.Node, value, remedy, problem string, args ...any) {
	r.note(n.Line, sharing.Invalid(r.orDocument(path), value, remedy, problem, args...))
}

func (r *reader) orDocument(path string) string {
	if path == r.root {
		return r.root + wholeConfig
	}
	return path
}

// line returns the line of a path, or of the nearest one above it.
func (r *reader) line(path string) int {
	for {
		if n, ok := r.lines[path]; ok {
			return n
		}
		if len(path) <= len(r.root) {
			return 0
		}
		path = path[:max(len(r.root), strings.LastIndexAny(path, ".["))]
	}
}

// hides reports whether there is an error at the path, below it or in the entry around it: what follows from that is
// not reported.
func (r *reader) hides(path string) bool {
	for _, m := range r.mistakes {
		if under(m.What.Field, path) || m.What.Field != r.root+"spec" && under(path, m.What.Field) {
			return true
		}
	}
	return false
}

// under reports whether path is the other path or below it.
func under(path, other string) bool {
	rest, below := strings.CutPrefix(path, other)
	return below && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// usable notes the path's line and refuses what no value here may have: an anchor, an alias, a tag, nothing.
func (r *reader) usable(path string, n *yaml.Node) bool {
	r.lines[path] = n.Line
	if n.Anchor != "" {
		r.bad(path, n, "&"+n.Anchor, "leave the anchor out", "has an anchor") // what is below can still be read
	}
	switch {
	case n.Kind == yaml.AliasNode:
		r.bad(path, n, "*"+n.Value, "write the value out", "is an alias")
	case n.Style&yaml.TaggedStyle != 0:
		r.bad(path, n, n.Tag, "leave the tag out", "has a tag")
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		r.bad(path, n, "", "write a value, or leave the field out", "is empty")
	default:
		return true
	}
	return false
}

// is refuses a node of another kind.
func (r *reader) is(path string, n *yaml.Node, kind yaml.Kind, want string) bool {
	if !r.usable(path, n) {
		return false
	}
	if n.Kind != kind {
		r.bad(path, n, "", "write "+want, "is not %s", want)
		return false
	}
	return true
}

// mapping gives each field of a mapping to its reader. Unknown fields and those that stand twice are errors; of the
// latter, the first is read.
func (r *reader) mapping(path string, n *yaml.Node, known fields) {
	r.pairs(path, n, func(path, name string, key, value *yaml.Node) {
		i := slices.IndexFunc(known, func(f field) bool { return f.Name == name })
		if i < 0 {
			if k := slices.IndexFunc(known, func(f field) bool { return f.was.key == name }); k >= 0 {
				r.bad(path, key, "", migrateRemedy, "is now %q", known[k].Name)
				return
			}
			names := known.names()
			remedy := meant(name, names) + "use one of " + strings.Join(slices.Sorted(slices.Values(names)), ", ")
			r.bad(path, key, "", remedy, "is not a known field")
			return
		}
		if now, is := known[i].wordNow(value); is && name != "minEnforcement" {
			r.bad(path, value, value.Value, migrateRemedy, "is now %q", now)
			return
		}
		known[i].read(r, path, value)
	})
}

func (r *reader) pairs(path string, n *yaml.Node, do func(path, name string, key, value *yaml.Node)) {
	if !r.is(path, n, yaml.MappingNode, "a mapping of fields") || !r.bounded(path, n, len(n.Content)/2) {
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content) && !r.mistakes.full(); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" || key.Anchor != "" ||
			key.Style&yaml.TaggedStyle != 0 {
			r.bad(path, key, key.Value, "write a plain name before the colon", "has a key that is not a plain text")
			continue
		}
		below := join(path, key.Value)
		if first, twice := seen[key.Value]; twice {
			r.bad(below, key, "", "leave one of them out", "stands twice, first in line %d", first)
			continue
		}
		seen[key.Value] = key.Line
		do(below, key.Value, key, value)
	}
}

func (r *reader) list(path string, n *yaml.Node, each func(path string, n *yaml.Node)) {
	if !r.is(path, n, yaml.SequenceNode, "a list") || !r.bounded(path, n, len(n.Content)) {
		return
	}
	for i, item := range n.Content {
		if r.mistakes.full() {
			return
		}
		each(at(path, i), item)
	}
}

// text reads a string. A number or a boolean is refused: what the text would be is not sure (1e3, no).
func (r *reader) text(path string, n *yaml.Node) string {
	if !r.is(path, n, yaml.ScalarNode, "a text") {
		return ""
	}
	if n.ShortTag() != "!!str" {
		r.bad(path, n, n.Value, "put it in quotes", "is not a text")
		return ""
	}
	if n.Value == "" {
		r.bad(path, n, "", "write a value, or leave the field out", "is empty")
	}
	return n.Value
}

func (r *reader) texts(path string, n *yaml.Node) []string {
	var out []string
	r.list(path, n, func(path string, n *yaml.Node) { out = append(out, r.text(path, n)) })
	if len(out) == 0 && !r.hides(path) {
		r.bad(path, n, "", "name at least one, or leave the field out", "is an empty list")
	}
	return out
}

// labels reads a mapping of texts; an empty text is a label's value like any other.
func (r *reader) labels(path string, n *yaml.Node) map[string]string {
	out := map[string]string{}
	r.pairs(path, n, func(path, name string, _, value *yaml.Node) {
		if !r.is(path, value, yaml.ScalarNode, "a text") {
			return
		}
		if value.ShortTag() != "!!str" {
			r.bad(path, value, value.Value, "put it in quotes", "is not a text")
			return
		}
		out[name] = value.Value
	})
	return out
}

// size reads an amount of memory, a text with a unit or a number of bytes.
func (r *reader) size(path string, n *yaml.Node) sharing.Bytes {
	if !r.is(path, n, yaml.ScalarNode, "a size") {
		return 0
	}
	return take(r, path, n, sharing.ParseSize)
}

// counted reads a whole number in decimal digits.
func counted[T any](r *reader, path string, n *yaml.Node, parse func(field, s string) (T, error)) (zero T) {
	if !r.is(path, n, yaml.ScalarNode, "a whole number") {
		return zero
	}
	// YAML reads 010 as octal, and some of its readers do not.
	if n.ShortTag() != "!!int" || len(n.Value) > 1 && n.Value[0] == '0' {
		r.bad(path, n, n.Value, "write a whole number, without quotes, unit or leading zero", "is not a whole number")
		return zero
	}
	return take(r, path, n, parse)
}

// parsed reads a text that parse understands.
func parsed[T any](r *reader, path string, n *yaml.Node, parse func(field, s string) (T, error)) (zero T) {
	if s := r.text(path, n); s == "" {
		return zero
	}
	return take(r, path, n, parse)
}

func take[T any](r *reader, path string, n *yaml.Node, parse func(field, s string) (T, error)) T {
	v, err := parse(path, n.Value)
	if what, ok := errors.AsType[*sharing.FieldError](err); ok {
		r.note(n.Line, what)
	}
	return v
}
