// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"reflect"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

// field is one field of a mapping: its description for people, and how it is read and written. Reader, writer, schema
// and reference are all made of these, so that none of them can lack what another has.
type field struct {
	Field
	// to is what is read and written; the tag that it has in its struct is the field's name.
	to   any
	read func(r *reader, path string, n *yaml.Node)
	// is makes the type where it is asked for, which reading does not; nil where Field has it.
	is func() Type
	// write returns the value as it is written. A value that is empty is left out, unless kept is true.
	write func() any
	kept  bool
	// was is the name in OldAPIVersion, and below gives the fields of the mapping or of each mapping in the list.
	was   oldName
	below func() fields
}

type fields []field

// named gives each field the name that is its tag in the struct.
func named(of any, f fields) fields {
	tags := map[any]string{}
	tagsOf(reflect.ValueOf(of).Elem(), tags)
	for i := range f {
		f[i].Name = tags[f[i].to]
	}
	return f
}

func tagsOf(v reflect.Value, into map[any]string) {
	for i := range v.NumField() {
		switch tag := v.Type().Field(i).Tag.Get("yaml"); tag {
		case "":
		case ",inline":
			tagsOf(v.Field(i), into)
		default:
			into[v.Field(i).Addr().Interface()] = tag
		}
	}
}

// names are those of the fields, in their order.
func (f fields) names() []string {
	out := make([]string, 0, len(f))
	for _, one := range f {
		out = append(out, one.Name)
	}
	return out
}

// described is the description of the fields for people.
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

// inline writes the list in one line.
func (f field) inline() field {
	write := f.write
	f.write = func() any {
		n := nodeOf(write())
		n.Style = yaml.FlowStyle
		return n
	}
	return f
}

// def sets what holds where the field is left out.
func (f field) def(text string) field {
	f.Default = text
	return f
}

// must says that the field is never left out.
func (f field) must() field {
	f.Required = true
	return f.keep()
}

// keep says that the field is written also where it is empty.
func (f field) keep() field {
	f.kept = true
	return f
}

// like shows how the field may be written.
func (f field) like(example string) field {
	f.Type.Example = example
	return f
}

func text(to *string, doc string) field {
	return field{
		Field: Field{Doc: doc, Type: Type{Kind: KindText}},
		to:    to,
		read:  func(r *reader, path string, n *yaml.Node) { *to = r.text(path, n) },
		write: func() any { return *to },
	}
}

func texts(to *[]string, doc string) field {
	return field{
		Field: Field{Doc: doc},
		to:    to,
		read:  func(r *reader, path string, n *yaml.Node) { *to = r.texts(path, n) },
		is:    func() Type { return Type{Kind: KindList, Of: &Type{Kind: KindText}} },
		write: func() any { return *to },
	}
}

// word is one of a few words.
func word[T fmt.Stringer](to *T, parse func(field, s string) (T, error), doc string, among ...T) field {
	return field{
		Field: Field{Doc: doc},
		to:    to,
		read:  func(r *reader, path string, n *yaml.Node) { *to = chosen(r, path, n, parse, among...) },
		is:    func() Type { return wordsOf(among...) },
		write: func() any { return written(*to) },
	}
}

// wordsOf is the type of such a field.
func wordsOf[T fmt.Stringer](among ...T) Type {
	t := Type{Kind: KindEnum}
	for _, w := range among {
		t.Values = append(t.Values, w.String())
	}
	return t
}

// chosen reads one of the words, and says which may have been meant.
func chosen[T fmt.Stringer](r *reader, path string, n *yaml.Node, parse func(field, s string) (T, error),
	among ...T) T {
	before := len(r.mistakes)
	v := parsed(r, path, n, parse)
	for _, m := range r.mistakes[before:] {
		if m.What.Field == path && n.Kind == yaml.ScalarNode {
			m.What.Remedy = meant(n.Value, wordsOf(among...).Values) + m.What.Remedy
		}
	}
	return v
}

func backendsField(to *[]sharing.Backend, doc string) field {
	return field{
		Field: Field{Doc: doc},
		to:    to,
		read: func(r *reader, path string, n *yaml.Node) {
			*to = []sharing.Backend{}
			r.list(path, n, func(path string, n *yaml.Node) {
				*to = append(*to, chosen(r, path, n, sharing.ParseBackend, sharing.Backends()...))
			})
		},
		is: func() Type {
			of := wordsOf(sharing.Backends()...)
			return Type{Kind: KindList, Of: &of}
		},
		write: func() any { return names(*to) },
	}
}

// whole is a whole number that parse understands.
func whole[T any](to *T, parse func(field, s string) (T, error), least, most int64, doc string) field {
	return field{
		Field: Field{Doc: doc},
		to:    to,
		read:  func(r *reader, path string, n *yaml.Node) { *to = counted(r, path, n, parse) },
		is: func() Type {
			return Type{Kind: KindWhole, Min: strconv.FormatInt(least, 10), Max: strconv.FormatInt(most, 10)}
		},
		write: func() any { return *to },
	}
}

func number(to *float64, doc string) field {
	return field{
		Field: Field{Doc: doc},
		to:    to,
		read:  func(r *reader, path string, n *yaml.Node) { *to = r.price(path, n) },
		is: func() Type {
			return Type{Kind: KindNumber, Min: "0", Max: strconv.FormatFloat(MaxPrice, 'f', 0, 64)}
		},
		write: func() any { return *to },
	}
}

func size(to *sharing.Bytes, doc string) field {
	return field{
		Field: Field{Doc: doc, Type: Type{Kind: KindSize, Example: "10GiB"}},
		to:    to,
		read:  func(r *reader, path string, n *yaml.Node) { *to = r.size(path, n) },
		write: func() any { return exact(*to) },
	}
}

func span(to *time.Duration, parse func(field, s string) (time.Duration, error), least, most time.Duration,
	doc string) field {
	return field{
		Field: Field{Doc: doc},
		to:    to,
		read:  func(r *reader, path string, n *yaml.Node) { *to = parsed(r, path, n, parse) },
		is:    func() Type { return Type{Kind: KindTime, Min: least.String(), Max: most.String()} },
		write: func() any { return written(*to) },
	}
}

func flag(to *bool, doc string) field {
	return field{
		Field: Field{Doc: doc, Type: Type{Kind: KindFlag}},
		to:    to,
		read:  func(r *reader, path string, n *yaml.Node) { *to = r.flag(path, n) },
		write: func() any { return *to },
	}
}

// object is a mapping with further fields.
func object(to any, f func() fields, doc string) field {
	return field{
		Field: Field{Doc: doc},
		to:    to,
		below: f,
		read:  func(r *reader, path string, n *yaml.Node) { r.mapping(path, n, f()) },
		is:    func() Type { return Type{Kind: KindObject, Fields: f().described()} },
		write: func() any {
			if of := f(); of.said() {
				return of.node()
			}
			return nil
		},
	}
}

// objects is a list of mappings, each with the fields that f gives for it.
func objects[T any](to *[]T, f func(*T) fields, doc string) field {
	return field{
		Field: Field{Doc: doc},
		to:    to,
		below: func() fields { return f(new(T)) },
		read: func(r *reader, path string, n *yaml.Node) {
			r.list(path, n, func(path string, n *yaml.Node) {
				var one T
				r.mapping(path, n, f(&one))
				*to = append(*to, one)
			})
		},
		is: func() Type {
			return Type{Kind: KindList, Of: &Type{Kind: KindObject, Fields: f(new(T)).described()}}
		},
		write: func() any {
			list := &yaml.Node{Kind: yaml.SequenceNode}
			for i := range *to {
				list.Content = append(list.Content, f(&(*to)[i]).node())
			}
			return list
		},
	}
}

// indexes is a list of GPUs' indexes.
func indexes(to *[]int, doc string) field {
	return field{
		Field: Field{Doc: doc},
		to:    to,
		read: func(r *reader, path string, n *yaml.Node) {
			r.list(path, n, func(path string, n *yaml.Node) { *to = append(*to, counted(r, path, n, parseCount)) })
			if len(*to) == 0 && !r.hides(path) {
				r.bad(path, n, "", "name at least one, or leave the field out for all", "is an empty list")
			}
		},
		is: func() Type {
			return Type{Kind: KindList, Of: &Type{Kind: KindWhole, Min: "0", Max: strconv.Itoa(maxGPUIndex)}}
		},
		write: func() any { return *to },
	}.inline()
}
