// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package manifest translates the GPU requests of manifests. It edits the text in place: all other lines, comments
// and the indent stay as they are, and JSON stays JSON.
//
// It finds pods and containers by their structure, in objects of each kind. A pod has a list of containers, or a
// mapping with resources. It names each GPU request that stays. If one request has no counterpart, it returns no
// text. It reads no file, and is pure.
package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/translate"
)

// MaxSize bounds a file of manifests, in bytes.
const MaxSize = 16 << 20

// Options say which pods, and how.
type Options struct {
	translate.Options
	// Namespace, where it is set, leaves the objects of other namespaces as they are; an object that names none is in
	// it.
	Namespace string
	// Scheduler replaces another scheduler's name in an object with a translated request; empty keeps the name.
	Scheduler string
	// ByClaim has pods request GPUs by ResourceClaims; nil for limits.
	ByClaim *translate.ClaimOptions
	// Decimal is the value of a quantity as a whole number ("1k" is 1000), or the text itself where it is none.
	Decimal func(quantity string) string
}

// Result is what became of a file.
type Result struct {
	// Text are the manifests as they are to be written.
	Text []byte
	// Pods counts the pods that were found, Changed those that are written otherwise.
	Pods, Changed int
	// Differences has a sentence for all that is not exactly as it was.
	Differences []string
	// Left has a sentence for each GPU request that stays as it is.
	Left []string
}

// Translate translates a file of manifests. Every problem is in the error, with the object that it is about; each wraps
// sharing.ErrInvalid.
func Translate(data []byte, o Options) (Result, error) {
	if len(data) > MaxSize {
		return Result{}, fmt.Errorf("the manifests are larger than %d bytes: %w", MaxSize, sharing.ErrInvalid)
	}
	docs, err := decode(data)
	if err != nil {
		return Result{}, err
	}
	w := newWalk(o)
	for _, doc := range docs {
		w.node(doc, object{}, 0)
	}
	w.schedulers()
	if err := errors.Join(w.errs...); err != nil {
		return Result{}, err
	}
	r := w.result
	if r.Text, err = written(data, docs, w.edits); err != nil {
		return Result{}, err
	}
	r.Left = w.left(docs)
	if o.ByClaim != nil {
		r.Left = append(r.Left, limitsLeft(docs, w.options.Namespace)...)
		if r.Text, err = withTemplates(r.Text, w.templates); err != nil {
			return Result{}, err
		}
	}
	slices.Sort(r.Differences)
	r.Differences = slices.Compact(r.Differences)
	return r, nil
}

// decode reads each YAML document of a file.
func decode(data []byte) (docs []*yaml.Node, err error) {
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w (%w)", len(docs)+1, err, sharing.ErrInvalid)
		}
		if deeper(&doc, deepest) {
			return nil, fmt.Errorf("document %d: %w", len(docs)+1, sharing.Invalid("the nesting", "",
				"translate its parts separately", "has more than %d levels", deepest))
		}
		docs = append(docs, &doc)
	}
}

// deeper is true if a tree has more levels.
func deeper(n *yaml.Node, levels int) bool {
	return levels < 0 || slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return deeper(c, levels-1) })
}

// written applies the edits to the text and to the trees, and proves that both say the same.
func written(data []byte, docs []*yaml.Node, e *edits) ([]byte, error) {
	if len(e.mappings)+len(e.scalars) == 0 {
		return data, nil
	}
	if e.conflict {
		return nil, sharing.Invalid("an anchor", "", "write its content out in each place",
			"is used by requests that translate differently")
	}
	e.prune()
	s := newSource(data)
	out := s.write(e)
	e.apply()
	again, err := decode(out)
	if err == nil && (!slices.EqualFunc(docs, again, func(a, b *yaml.Node) bool { return same(a, b, 0) }) ||
		s.isJSON && !json.Valid(out)) {
		err = errors.New("the text has another meaning then")
	}
	if err != nil {
		return nil, fmt.Errorf("edit the manifests: %w: write each request as one line (key: value) and each "+
			"mapping without tags (%w)", err, sharing.ErrInvalid)
	}
	return out, nil
}

// deepest is how deep manifests can be nested.
const deepest = 256

// object names what a pod is found in.
type object struct {
	kind, namespace, name, api string
	node                       *yaml.Node
}

func (o object) String() string {
	switch {
	case o.kind == "":
		return "a YAML document without a kind"
	case o.namespace != "":
		return o.kind + " " + o.namespace + "/" + o.name
	}
	return o.kind + " " + o.name
}

// objectOf is the object that a mapping is, or else the one around it.
func objectOf(n *yaml.Node, around object) object {
	meta := get(n, "metadata")
	if kind := scalar(get(n, "kind")); kind != "" && meta != nil {
		name := cmp.Or(scalar(get(meta, "name")), scalar(get(meta, "generateName")))
		return object{kind, scalar(get(meta, "namespace")), name, scalar(get(n, "apiVersion")), n}
	}
	return around
}
