// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

// Encode writes a config that Decode reads back as c.
func (c Config) Encode() ([]byte, error) {
	head := heading{Version: APIVersion, Kind: Kind, Doc: c.doc}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(head.fields().node()); err != nil {
		return nil, fmt.Errorf("encode sharing config: %w", err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("encode sharing config: %w", err)
	}
	return out.Bytes(), nil
}

// said reports whether one of the fields says something.
func (f fields) said() bool {
	return slices.ContainsFunc(f, func(one field) bool { return !empty(one.write()) })
}

// node is the mapping of the fields that are not left out.
func (f fields) node() *yaml.Node {
	m := &yaml.Node{Kind: yaml.MappingNode}
	var plain []any
	var into []*yaml.Node
	for _, one := range f {
		v := one.write()
		if empty(v) && !one.kept {
			continue
		}
		value, is := v.(*yaml.Node)
		if !is {
			value = &yaml.Node{}
			plain, into = append(plain, v), append(into, value)
		}
		m.Content = append(m.Content, nameNode(one.Name), value)
	}
	// All at once, since each call makes an encoder and a parser.
	for i, n := range nodeOf(plain).Content {
		*into[i] = *n
	}
	return m
}

// nodeOf is a value as it is written: a text, number or truth value, or a list or mapping of these, which never fail.
func nodeOf(v any) *yaml.Node {
	var n yaml.Node
	_ = n.Encode(v)
	return &n
}

func nameNode(name string) *yaml.Node {
	var n yaml.Node
	n.SetString(name)
	return &n
}

// empty reports whether a value is left out.
func empty(v any) bool {
	if n, is := v.(*yaml.Node); is {
		return n.Kind != yaml.ScalarNode && len(n.Content) == 0
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Slice, reflect.Map:
		return r.Len() == 0
	default:
		return r.IsZero()
	}
}

// written is a value's text, and empty for the zero value, which is what holds where the field is left out.
func written[T fmt.Stringer](v T) string {
	if empty(v) {
		return ""
	}
	return v.String()
}

func texted[T fmt.Stringer](list []T) []string {
	var out []string
	for _, one := range list {
		out = append(out, one.String())
	}
	return out
}

func names(list []sharing.Backend) []string { return texted(list) }

func burst(b sharing.Burst) string {
	if b.Percent == 0 {
		return exact(b.Memory)
	}
	return b.String()
}

// exact writes an amount without loss; Bytes.String is for people and may round.
func exact(b sharing.Bytes) string {
	if b == 0 {
		return ""
	}
	if s := b.String(); readsAs(s, b) {
		return s
	}
	return strconv.FormatUint(uint64(b), 10) + "B"
}

func readsAs(s string, b sharing.Bytes) bool {
	again, err := sharing.ParseBytes("", s)
	return err == nil && again == b
}
