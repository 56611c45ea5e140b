// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

// field is one field of a mapping: what people are told of it, and how it is read. Reader, schema and reference are all made
// of these, so that none of them can lack what another has.
type field struct {
	Field
	read func(r *reader, path string, n *yaml.Node)
	// is makes the type where it is asked for, which reading does not; nil where Field has it.
	is func() Type
}

type fields []field

// names are those of the fields, in their order.
func (f fields) names() []string {
	out := make([]string, 0, len(f))
	for _, one := range f {
		out = append(out, one.Name)
	}
	return out
}

// described is what people are told of the fields.
func (f fields) described() []Field {
	out := make([]Field, 0, len(f))
	for _, one := range f {
		if one.is != nil {
			example := one.Type.Example
			if one.Type = one.is(); example != "" {
				one.Type.Example = example
			}
		}
		out = append(out, one.Field)
	}
	return out
}

// def sets what holds where the field is left out.
func (f field) def(text string) field {
	f.Default = text
	return f
}

// must says that the field is never left out.
func (f field) must() field {
	f.Required = true
	return f
}

// like shows how the field may be written.
func (f field) like(example string) field {
	f.Type.Example = example
	return f
}

func text(name string, to *string, doc string) field {
	return field{Field{Name: name, Doc: doc, Type: Type{Kind: KindText}}, func(r *reader, path string, n *yaml.Node) { *to = r.text(path, n) }, nil}
}

func texts(name string, to *[]string, doc string) field {
	return field{
		Field{Name: name, Doc: doc},
		func(r *reader, path string, n *yaml.Node) { *to = r.texts(path, n) },
		func() Type { return Type{Kind: KindList, Of: &Type{Kind: KindText}} },
	}
}

// word is one of a few words.
func word[T fmt.Stringer](name string, to *T, parse func(field, s string) (T, error), doc string, among ...T) field {
	return field{
		Field{Name: name, Doc: doc},
		func(r *reader, path string, n *yaml.Node) { *to = chosen(r, path, n, parse, among...) },
		func() Type { return wordsOf(among...) },
	}
}

// wordsOf is the type of such a field.
func wordsOf[T fmt.Stringer](among ...T) Type {
	t := Type{Kind: KindWord}
	for _, w := range among {
		t.Words = append(t.Words, w.String())
	}
	return t
}

// chosen reads one of the words, and says which may have been meant.
func chosen[T fmt.Stringer](r *reader, path string, n *yaml.Node, parse func(field, s string) (T, error), among ...T) T {
	before := len(r.mistakes)
	v := parsed(r, path, n, parse)
	for _, m := range r.mistakes[before:] {
		if m.What.Field == path && n.Kind == yaml.ScalarNode {
			m.What.Remedy = meant(n.Value, wordsOf(among...).Words) + m.What.Remedy
		}
	}
	return v
}

func backendsField(to *[]Backend, doc string) field {
	return field{
		Field{Name: "backends", Doc: doc},
		func(r *reader, path string, n *yaml.Node) {
			*to = []Backend{}
			r.list(path, n, func(path string, n *yaml.Node) { *to = append(*to, chosen(r, path, n, ParseBackend, Backends()...)) })
		},
		func() Type {
			of := wordsOf(Backends()...)
			return Type{Kind: KindList, Of: &of}
		},
	}
}

// whole is a whole number that parse understands.
func whole[T any](name string, to *T, parse func(field, s string) (T, error), least, most int64, doc string) field {
	return field{
		Field{Name: name, Doc: doc},
		func(r *reader, path string, n *yaml.Node) { *to = counted(r, path, n, parse) },
		func() Type {
			return Type{Kind: KindWhole, Least: strconv.FormatInt(least, 10), Most: strconv.FormatInt(most, 10)}
		},
	}
}

func number(name string, to *float64, doc string) field {
	return field{
		Field{Name: name, Doc: doc},
		func(r *reader, path string, n *yaml.Node) { *to = r.price(path, n) },
		func() Type {
			return Type{Kind: KindNumber, Least: "0", Most: strconv.FormatFloat(MaxPrice, 'f', 0, 64)}
		},
	}
}

func size(name string, to *sharing.Bytes, doc string) field {
	return field{
		Field{Name: name, Doc: doc, Type: Type{Kind: KindSize, Example: "10GiB"}},
		func(r *reader, path string, n *yaml.Node) { *to = r.size(path, n) },
		nil,
	}
}

func span(name string, to *time.Duration, parse func(field, s string) (time.Duration, error), least, most time.Duration, doc string) field {
	return field{
		Field{Name: name, Doc: doc},
		func(r *reader, path string, n *yaml.Node) { *to = parsed(r, path, n, parse) },
		func() Type { return Type{Kind: KindTime, Least: least.String(), Most: most.String()} },
	}
}

func flag(name string, to *bool, doc string) field {
	return field{
		Field{Name: name, Doc: doc, Type: Type{Kind: KindFlag}},
		func(r *reader, path string, n *yaml.Node) { *to = r.flag(path, n) },
		nil,
	}
}

// object is a mapping with fields of its own.
func object(name string, f func() fields, doc string) field {
	return field{
		Field{Name: name, Doc: doc},
		func(r *reader, path string, n *yaml.Node) { r.mapping(path, n, f()) },
		func() Type { return Type{Kind: KindObject, Fields: f().described()} },
	}
}

// objects is a list of mappings, each with the fields that f gives for it.
func objects[T any](name string, to *[]T, f func(*T) fields, doc string) field {
	return field{
		Field{Name: name, Doc: doc},
		func(r *reader, path string, n *yaml.Node) {
			r.list(path, n, func(path string, n *yaml.Node) {
				var one T
				r.mapping(path, n, f(&one))
				*to = append(*to, one)
			})
		},
		func() Type {
			return Type{Kind: KindList, Of: &Type{Kind: KindObject, Fields: f(new(T)).described()}}
		},
	}
}

// indexes is a list of GPUs' indexes.
func indexes(name string, to *[]int, doc string) field {
	return field{
		Field{Name: name, Doc: doc},
		func(r *reader, path string, n *yaml.Node) {
			r.list(path, n, func(path string, n *yaml.Node) { *to = append(*to, counted(r, path, n, parseCount)) })
			if len(*to) == 0 && !r.hides(path) {
				r.bad(path, n, "", "name at least one, or leave the field out for all", "is an empty list")
			}
		},
		func() Type {
			return Type{Kind: KindList, Of: &Type{Kind: KindWhole, Least: "0", Most: strconv.Itoa(maxGPUIndex)}}
		},
	}
}
