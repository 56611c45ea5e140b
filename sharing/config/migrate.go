// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

// OldAPIVersion is the version before APIVersion. Decode reads it for one release.
const OldAPIVersion = sharing.Domain + "/v1alpha1"

// migrateRemedy names the command that converts a file.
const migrateRemedy = "run 'kerf config migrate'"

// Change is the new name of a field or value of OldAPIVersion.
type Change struct {
	// File is the name of the file, Line the line in it from 1, and Path the field as it is written there.
	File string
	Line int
	Path string
	// Old and New are the field's names, or the words of its value.
	Old, New string
	// node is the word that changes, and value is true if it is not a key.
	node  *yaml.Node
	value bool
}

// String is one sentence about the change.
func (c Change) String() string {
	where := ""
	if c.File != "" {
		where = c.File + ": "
	}
	path := c.Path
	if c.value {
		path += fmt.Sprintf(" %q", c.Old)
	}
	return fmt.Sprintf("%sline %d: %s is now %q", where, c.Line, path, c.New)
}

// oldName is what a field of OldAPIVersion was called: its key, and the words that have other names now.
type oldName struct {
	key   string
	words [][2]string // old, new
}

// rename sets the old name of the field, and its renamed words as old=new. A field that keeps its name gives it.
func (f field) rename(key string, words ...string) field {
	f.was.key = key
	for _, w := range words {
		before, now, _ := strings.Cut(w, "=")
		f.was.words = append(f.was.words, [2]string{before, now})
	}
	return f
}

// Renamed is a row of the table of renamed fields: the path of the mapping around it, and the names before and now.
type Renamed struct{ Where, Old, New string }

// Renames are the fields of OldAPIVersion that have another name, or whose words have one, in the order of Describe.
func Renames() []Renamed {
	var out []Renamed
	var walk func(where string, f fields)
	walk = func(where string, f fields) {
		for _, one := range f {
			if one.was.key != "" && one.was.key != one.Name {
				out = append(out, Renamed{where, one.was.key, one.Name})
			}
			for _, w := range one.was.words {
				out = append(out, Renamed{where, one.was.key + ": " + w[0], one.Name + ": " + w[1]})
			}
			if one.below != nil {
				walk(join(where, one.Name), one.below())
			}
		}
	}
	var d Spec
	walk("", d.fields())
	return out
}

// changesIn finds what has another name in APIVersion, or with back in OldAPIVersion, in n and below it.
func changesIn(path string, n *yaml.Node, known fields, back bool) []Change {
	if n.Kind == yaml.SequenceNode {
		var out []Change
		for i, item := range n.Content {
			out = append(out, changesIn(at(path, i), item, known, back)...)
		}
		return out
	}
	if n.Kind != yaml.MappingNode {
		return nil
	}
	var out []Change
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		k := slices.IndexFunc(known, func(f field) bool { return f.nameIn(!back) == key.Value })
		if k < 0 {
			continue
		}
		f, here := known[k], join(path, key.Value)
		if now := f.nameIn(back); now != key.Value {
			out = append(out, Change{Line: key.Line, node: key, Path: here, Old: key.Value, New: now})
		}
		for _, w := range f.was.words {
			before, now := w[0], w[1]
			if back {
				before, now = now, before
			}
			if value.Kind == yaml.ScalarNode && value.Value == before {
				out = append(out, Change{Line: value.Line, node: value, Path: here, Old: before, New: now, value: true})
			}
		}
		if f.below != nil {
			out = append(out, changesIn(here, value, f.below(), back)...)
		}
	}
	return out
}

// nameIn is the field's key in OldAPIVersion if old is true, else in APIVersion.
func (f field) nameIn(old bool) string {
	if old {
		return cmp.Or(f.was.key, f.Name)
	}
	return f.Name
}

// wordNow is what a word of OldAPIVersion is called now.
func (f field) wordNow(n *yaml.Node) (string, bool) {
	for _, w := range f.was.words {
		if n.Kind == yaml.ScalarNode && n.Value == w[0] {
			return w[1], true
		}
	}
	return "", false
}

// versionOf are the apiVersion and the spec of a config; nil where it has none.
func versionOf(root *yaml.Node) (version, spec *yaml.Node) {
	if root == nil || root.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch root.Content[i].Value {
		case "apiVersion":
			version = root.Content[i+1]
		case "spec":
			spec = root.Content[i+1]
		}
	}
	return version, spec
}

// changesOf are all changes that take the text of a config from one version to the other. A text of APIVersion can have
// old names, too.
func changesOf(root *yaml.Node, from, to string) []Change {
	version, spec := versionOf(root)
	if version == nil || version.Kind != yaml.ScalarNode || version.Value != from && version.Value != APIVersion {
		return nil
	}
	var out []Change
	if version.Value == from {
		out = append(out, Change{Line: version.Line, node: version, Path: "apiVersion", Old: from, New: to,
			value: true})
	}
	if spec == nil {
		return out
	}
	var d Spec
	return append(out, changesIn("spec", spec, d.fields(), from == APIVersion)...)
}

// Changes are what Migrate changes in a text, in the order of its lines.
func Changes(data []byte) []Change {
	root, _ := parse(data)
	out := changesOf(root, OldAPIVersion, APIVersion)
	slices.SortStableFunc(out, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.node.Column, b.node.Column))
	})
	return out
}

// Warning is what users of an outdated config are to do; empty where no file has OldAPIVersion.
func Warning(files ...File) string {
	for _, f := range files {
		root, _ := parse(f.Data)
		if version, _ := versionOf(root); version != nil && version.Value == OldAPIVersion {
			return fmt.Sprintf("the config has version %s, which Kerf reads for one release; %s to convert it to %s",
				OldAPIVersion, migrateRemedy, APIVersion)
		}
	}
	return ""
}

// Migrate converts a text of OldAPIVersion to APIVersion, and renames old names in a text of APIVersion. Comments,
// order and layout stay. Another text is returned as it is. The error wraps sharing.ErrInvalid.
func Migrate(data []byte) ([]byte, error) {
	return rewrite(data, OldAPIVersion, APIVersion)
}

// MigrateBack converts a text of APIVersion to OldAPIVersion, which an agent reads to which a node rolls back.
func MigrateBack(data []byte) ([]byte, error) {
	return rewrite(data, APIVersion, OldAPIVersion)
}

// ForRollback converts the files to OldAPIVersion for the last known good config, so that the agent before this version
// can read it. A file that cannot be converted stays as it is.
func ForRollback(files []File) []File { return converted(files, MigrateBack) }

// Current converts the files of a last known good config to APIVersion. It undoes ForRollback.
func Current(files []File) []File { return converted(files, Migrate) }

func converted(files []File, to func([]byte) ([]byte, error)) []File {
	out := slices.Clone(files)
	for i, f := range files {
		if data, err := to(f.Data); err == nil {
			out[i].Data = data
		}
	}
	return out
}

// rewrite replaces the words in the text.
func rewrite(data []byte, from, to string) ([]byte, error) {
	root, _ := parse(data)
	changes := changesOf(root, from, to)
	lines := strings.SplitAfter(string(data), "\n")
	// A change moves what follows it in its line, so that the last one comes first.
	slices.SortStableFunc(changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(b.Line, a.Line), cmp.Compare(b.node.Column, a.node.Column))
	})
	for _, c := range changes {
		if c.Line < 1 || c.Line > len(lines) {
			return nil, unwritable(c)
		}
		line := lines[c.Line-1]
		i := offsetOf(line, c.node.Column)
		if i < len(line) && (line[i] == '"' || line[i] == '\'') {
			i++
		}
		if !strings.HasPrefix(line[i:], c.Old) {
			return nil, unwritable(c)
		}
		lines[c.Line-1] = line[:i] + c.New + line[i+len(c.Old):]
	}
	return []byte(strings.Join(lines, "")), nil
}

func unwritable(c Change) error {
	return sharing.Invalid(c.Path, c.Old, fmt.Sprintf("rename it to %q, or use no escapes", c.New),
		"cannot be converted (line %d)", c.Line)
}

// offsetOf is where a column begins, which counts characters from 1.
func offsetOf(line string, column int) int {
	i := 0
	for n := 1; n < column && i < len(line); n++ {
		_, size := utf8.DecodeRuneInString(line[i:])
		i += size
	}
	return i
}

// update renames what is in the nodes of a text of OldAPIVersion in place.
func update(root *yaml.Node) {
	if version, _ := versionOf(root); version == nil || version.Value != OldAPIVersion {
		return
	}
	for _, c := range changesOf(root, OldAPIVersion, APIVersion) {
		c.node.Value = c.New
	}
}
