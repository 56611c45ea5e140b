// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package manifest translates the pods of manifests. It writes what package translate says of a pod into the YAML. All
// else stays as it is, comments and order too.
//
// A pod is any object with metadata and a spec with containers. So the templates of every kind are found, also of kinds
// that are unknown here. It promises to write nothing if any pod is rejected. It reads no file, and is pure.
package manifest

import (
	"bytes"
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
	// Decimal is the value of a quantity as a whole number ("1k" is 1000), or the text itself where it is none.
	Decimal func(quantity string) string
}

// Result is what became of a file.
type Result struct {
	// Text are the manifests as they are to be written.
	Text []byte
	// Pods counts the pods that were found, Changed those that are written otherwise.
	Pods, Changed int
	// Said has a sentence for all that is not exactly as it was.
	Said []string
}

// Translate translates a file of manifests. Every problem is in the error, with the object that it is about; each wraps
// sharing.ErrInvalid.
func Translate(text []byte, o Options) (Result, error) {
	if len(text) > MaxSize {
		return Result{}, fmt.Errorf("the manifests are larger than %d bytes: %w", MaxSize, sharing.ErrInvalid)
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	r, errs := Result{}, []error{}
	for d, n := yaml.NewDecoder(bytes.NewReader(text)), 1; ; n++ {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Result{}, fmt.Errorf("document %d: %w (%w)", n, err, sharing.ErrInvalid)
		}
		w := &walk{options: o, result: &r}
		w.node(&doc, object{}, 0)
		errs = append(errs, w.errs...)
		if err := encoder.Encode(&doc); err != nil {
			return Result{}, fmt.Errorf("document %d: write: %w (%w)", n, err, sharing.ErrInvalid)
		}
	}
	if err := encoder.Close(); err != nil {
		return Result{}, fmt.Errorf("write: %w", err)
	}
	if err := errors.Join(errs...); err != nil {
		return Result{}, err
	}
	if r.Text = text; r.Changed > 0 { // unchanged text keeps its form
		r.Text = out.Bytes()
	}
	return r, nil
}

// deepest is how deep manifests are looked into.
const deepest = 64

// object names what a pod is found in.
type object struct{ kind, namespace, name string }

func (o object) String() string {
	if o.namespace != "" {
		return o.kind + " " + o.namespace + "/" + o.name
	}
	return o.kind + " " + o.name
}

// walk looks for pods in one document.
type walk struct {
	options Options
	result  *Result
	errs    []error
}

func (w *walk) node(n *yaml.Node, in object, depth int) {
	if depth > deepest {
		return
	}
	if n.Kind == yaml.MappingNode {
		if kind := scalar(get(n, "kind")); kind != "" && get(n, "metadata") != nil {
			meta := get(n, "metadata")
			in = object{kind, scalar(get(meta, "namespace")), scalar(get(meta, "name"))}
		}
		if spec := get(n, "spec"); spec != nil && len(list(get(spec, "containers"))) > 0 {
			if w.options.Namespace == "" || in.namespace == "" || in.namespace == w.options.Namespace {
				w.pod(n, spec, in)
			}
			return
		}
	}
	for _, c := range n.Content { // an alias is looked at where its anchor is
		w.node(c, in, depth+1)
	}
}

// pod translates one pod, or template of pods.
func (w *walk) pod(n, spec *yaml.Node, in object) {
	w.result.Pods++
	first := list(get(spec, "initContainers"))
	containers := append(slices.Clone(first), list(get(spec, "containers"))...)
	p := translate.Pod{Annotations: texts(get(get(n, "metadata"), "annotations"))}
	for i, c := range containers {
		limits := map[string]string{}
		resources := get(c, "resources")
		for _, part := range []string{"requests", "limits"} { // a limit counts where both are there
			for name, v := range texts(get(resources, part)) {
				limits[name] = w.options.Decimal(v)
			}
		}
		p.Containers = append(p.Containers, translate.Container{Name: scalar(get(c, "name")), Limits: limits,
			Init: i < len(first)})
	}
	change, err := w.options.Pod(p)
	if err != nil {
		w.errs = append(w.errs, fmt.Errorf("%v: %w", in, err))
		return
	}
	if change.Empty() {
		return
	}
	w.result.Changed++
	for _, s := range change.Said {
		w.result.Said = append(w.result.Said, in.String()+": "+s)
	}
	for i, c := range containers {
		name := p.Containers[i].Name
		for _, part := range []string{"requests", "limits"} {
			for _, drop := range change.Drop[name] {
				remove(get(get(c, "resources"), part), drop)
			}
		}
		if limits := change.Limits[name]; len(limits) > 0 {
			set(child(child(c, "resources"), "limits"), limits)
		}
		if r := get(c, "resources"); r != nil {
			prune(r, "requests")
			prune(r, "limits")
		}
	}
	meta := child(n, "metadata")
	for _, drop := range change.DropAnnotations {
		remove(get(meta, "annotations"), drop)
	}
	if len(change.Annotations) > 0 {
		set(child(meta, "annotations"), change.Annotations)
	}
	prune(meta, "annotations")
	slices.Sort(w.result.Said)
}
