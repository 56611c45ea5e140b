// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

// wholeConfig is the field of an error that is in no part of the config.
const wholeConfig = "the config"

// File is a part of a config: a complete text, with a head.
type File struct {
	// Name is said where the file is wrong.
	Name string
	Data []byte
}

// FilesOf are the files of a config in a ConfigMap, one for each key: by name those that end in .yaml, .yml or .json.
// Other keys are of no config.
func FilesOf(data map[string]string) []File {
	var out []File
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if IsFile(name) {
			out = append(out, File{Name: name, Data: []byte(data[name])})
		}
	}
	return out
}

// IsFile reports whether a file of that name is one of a config.
func IsFile(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") || strings.HasSuffix(name, ".json")
}

// Hash identifies a config, however it was read. Of a single file it is the SHA-256 of its content, of several that of
// their names and contents.
func Hash(files []File) string {
	h := sha256.New()
	for _, f := range files {
		if len(files) > 1 {
			_, _ = fmt.Fprintf(h, "%q %d\n", f.Name, len(f.Data)) // never fails
		}
		_, _ = h.Write(f.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Decode reads a config, YAML or JSON. Unknown and doubled fields, wrong types, anchors and aliases, tags, a second
// YAML document and another version are errors, as is whatever New refuses. The error is Errors, and then nothing of
// the config is returned.
func Decode(data []byte) (Config, error) { return combine([]File{{Data: data}}) }

// DecodeFiles is Decode for a config in several files, each with its head. It joins their pools and profiles in the
// files' order, and one of them may have prices. Several files have different names that are not empty.
func DecodeFiles(files ...File) (Config, error) {
	if len(files) == 0 {
		return Config{}, none()
	}
	return combine(files)
}

func none() Errors {
	return Errors{{What: sharing.Invalid(wholeConfig, "", "write a file that begins with apiVersion: "+APIVersion,
		"has no file")}}
}

func combine(files []File) (Config, error) {
	var whole Spec
	var where paths
	readers := make([]*reader, len(files))
	complete := true
	for i, f := range files {
		r := &reader{name: f.Name, lines: map[string]int{}}
		if f.Name != "" {
			r.root = f.Name + ": "
		}
		readers[i] = r
		doc, known := r.file(f.Data)
		complete = complete && known
		r.add(&whole, doc, &where)
	}
	if complete {
		// What is wrong in the text hides what follows from it in the meaning.
		meaning := make([]Errors, len(readers))
		for _, m := range check(whole, where) {
			i := slices.IndexFunc(readers, func(r *reader) bool { return strings.HasPrefix(m.What.Field, r.root) })
			if r := readers[i]; !r.hides(m.What.Field) {
				m.Line = r.line(m.What.Field)
				meaning[i] = append(meaning[i], m)
			}
		}
		for i, r := range readers {
			r.mistakes = append(r.mistakes, meaning[i]...)
		}
	}
	var all Errors
	for _, r := range readers {
		for _, m := range r.mistakes.byLine() {
			m.File, m.What.Field = r.name, strings.TrimPrefix(m.What.Field, r.root)
			all = append(all, m)
		}
	}
	if len(all) > 0 {
		return Config{}, all.bounded()
	}
	return Config{doc: whole.clone()}, nil
}

// file reads one file; known is false where what is in it could not be made out.
func (r *reader) file(data []byte) (doc Spec, known bool) {
	root, mistakes := parse(data)
	for _, m := range mistakes {
		m.What.Field = r.root + m.What.Field
		r.mistakes = append(r.mistakes, m)
	}
	if root == nil {
		return Spec{}, false
	}
	update(root)
	doc, known = r.document(root)
	return doc, known && !r.mistakes.full()
}

// add puts what a file says to what those before it say.
func (r *reader) add(whole *Spec, doc Spec, where *paths) {
	if where.none == "" {
		where.none = join(r.root, "spec.pools")
	}
	for i := range doc.Pools {
		where.pools = append(where.pools, at(join(r.root, "spec.pools"), i))
	}
	for i := range doc.Profiles {
		where.profiles = append(where.profiles, at(join(r.root, "spec.profiles"), i))
	}
	whole.Pools, whole.Profiles = append(whole.Pools, doc.Pools...), append(whole.Profiles, doc.Profiles...)
	here := join(r.root, "spec.prices")
	if _, has := r.lines[here]; !has {
		return
	}
	if where.prices != "" {
		r.note(r.line(here), sharing.Invalid(here, "", "write them in one file", "stands also in %s", where.prices))
		return
	}
	where.prices, whole.Prices = here, doc.Prices
}

// parse returns the root node, nil when there is none, and what is wrong with the text.
func parse(data []byte) (*yaml.Node, Errors) {
	whole := func(remedy, problem string, args ...any) Errors {
		return Errors{{What: sharing.Invalid(wholeConfig, "", remedy, problem, args...)}}
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
		return root.Content[0], Errors{
			{Line: second.Line, What: sharing.Invalid(wholeConfig, "", "put all in the first document",
				"is followed by another one")}}
	} else if !errors.Is(err, io.EOF) {
		return root.Content[0], syntax(err)
	}
	return root.Content[0], nil
}

// syntax turns the parser's error into an Error, with the line that its text names. The library counts that line from 0
// or from 1, depending on which of its parts found the error.
func syntax(err error) Errors {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, after, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(number); err == nil {
				line, text = n, after
			}
		}
	}
	return Errors{{Line: line, What: sharing.Invalid(wholeConfig, "", "correct the syntax",
		"is not YAML, here or in the next line: %s", text)}}
}

// heading is the config with its head.
type heading struct {
	Version string `yaml:"apiVersion"`
	Kind    string `yaml:"kind"`
	Doc     Spec   `yaml:"spec"`
	spec    *yaml.Node
}

func (h *heading) fields() fields {
	spec := object(&h.Doc, h.Doc.fields, "Pools, profiles and prices.").must()
	spec.read = func(_ *reader, _ string, n *yaml.Node) { h.spec = n } // once the version is known
	spec.write = func() any { return h.Doc.fields().node() }
	version, kind := text(&h.Version, "The version of the config.").must(),
		text(&h.Kind, "The kind of the config.").must()
	version.Type, kind.Type = Type{Kind: KindEnum, Values: []string{APIVersion}},
		Type{Kind: KindEnum, Values: []string{Kind}}
	return named(h, fields{version, kind, spec})
}

// document reads the head, and the rest when the head is one that this version knows.
func (r *reader) document(n *yaml.Node) (doc Spec, known bool) {
	var h heading
	r.mapping(r.root, n, h.fields())
	if h.Version != APIVersion && !r.hides(r.root+"apiVersion") {
		r.missingOr(r.root+"apiVersion", h.Version, meant(h.Version, []string{APIVersion})+"write "+APIVersion,
			"is not a version that is known here")
	}
	if h.Kind != Kind && !r.hides(r.root+"kind") {
		r.missingOr(r.root+"kind", h.Kind, meant(h.Kind, []string{Kind})+"write "+Kind,
			"is not the kind of a SharingConfig")
	}
	if h.Version != APIVersion || h.Kind != Kind {
		return Spec{}, false // what the rest means is not known
	}
	if h.spec == nil {
		r.missingOr(r.root+"spec", "", "write spec: with pools below", "")
		return Spec{}, false
	}
	r.mapping(r.root+"spec", h.spec, h.Doc.fields())
	return h.Doc, true
}

func (r *reader) missingOr(path, value, remedy, problem string) {
	if value == "" {
		problem = "is missing"
	}
	r.note(r.line(path), sharing.Invalid(path, value, remedy, "%s", problem))
}

// join appends a field's name to a path.
func join(path, name string) string {
	if path == "" || strings.HasSuffix(path, ": ") {
		return path + name
	}
	return path + "." + name
}

// at appends a position to a path.
func at(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
