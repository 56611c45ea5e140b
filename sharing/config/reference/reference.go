// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package reference tells people and editors what a SharingConfig may say: as a JSON Schema, and as a page of the
// documentation.
//
// Both are made of what the decoder itself reads by, and are the same for the same version of the program. A document that
// the decoder takes is valid by the schema; the schema does not know what follows from the meaning of several fields
// together, which the decoder checks, too.
package reference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// schema is a part of a JSON Schema; the fields are the keywords, in the order in which they are written.
type schema struct {
	Schema      string             `json:"$schema,omitempty"`
	ID          string             `json:"$id,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        []string           `json:"type,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	MinLength   int                `json:"minLength,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	Minimum     json.Number        `json:"minimum,omitempty"`
	Maximum     json.Number        `json:"maximum,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	// Additional is a schema, or false.
	Additional any `json:"additionalProperties,omitempty"`
}

// Schema is the JSON Schema (draft 2020-12) of the document.
func Schema() ([]byte, error) {
	s := schemaOf(config.Describe())
	s.Schema, s.ID, s.Title = "https://json-schema.org/draft/2020-12/schema", "https://kerf.dev/schemas/sharingconfig.v1alpha1.json", config.Kind
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		return nil, fmt.Errorf("encode the schema: %w", err)
	}
	return out.Bytes(), nil
}

func schemaOf(t config.Type) *schema {
	switch t.Kind {
	case config.KindWord:
		return &schema{Type: []string{"string"}, Enum: t.Words}
	case config.KindWhole:
		return &schema{Type: []string{"integer"}, Minimum: json.Number(t.Least), Maximum: json.Number(t.Most)}
	case config.KindNumber:
		return &schema{Type: []string{"number"}, Minimum: json.Number(t.Least), Maximum: json.Number(t.Most)}
	case config.KindSize:
		return &schema{Type: []string{"string", "integer"}, Pattern: `^[0-9]`, Minimum: "1"}
	case config.KindTime:
		return &schema{Type: []string{"string"}, Pattern: `^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)`}
	case config.KindFlag:
		return &schema{Type: []string{"boolean"}}
	case config.KindList:
		return &schema{Type: []string{"array"}, Items: schemaOf(*t.Of)}
	case config.KindMap:
		of := schemaOf(*t.Of)
		of.MinLength = 0 // a label's value may be empty
		return &schema{Type: []string{"object"}, Additional: of}
	case config.KindObject:
		s := &schema{Type: []string{"object"}, Properties: map[string]*schema{}, Additional: false}
		for _, f := range t.Fields {
			one := schemaOf(f.Type)
			one.Description = f.Doc
			if f.Default != "" {
				one.Description += " Left out: " + f.Default + "."
			}
			s.Properties[f.Name] = one
			if f.Required {
				s.Required = append(s.Required, f.Name)
			}
		}
		return s
	case config.KindText:
	}
	return &schema{Type: []string{"string"}, MinLength: 1}
}

// Page is the reference as a page in Markdown.
func Page() []byte {
	var out bytes.Buffer
	out.WriteString("# SharingConfig, field by field\n\n" +
		"This page is made from what the program reads by (`make generate`). [configuration.md](configuration.md) says how the document is\n" +
		"used; editors take [sharingconfig.schema.json](../deploy/sharingconfig.schema.json).\n\n" +
		"Sizes are texts with a unit (`10GiB`, `512MiB`) or numbers of bytes; times have a unit (`30s`, `1h30m`); globs are over the model's\n" +
		"name, where `*` is any text. A field that is left out has its default; a dash means that nothing is done.\n")
	section(&out, "", config.Describe().Fields)
	return out.Bytes()
}

// section writes the fields of one mapping, and then those of the mappings in it.
func section(out *bytes.Buffer, path string, fields []config.Field) {
	title := "The document"
	if path != "" {
		title = "`" + path + "`"
	}
	fmt.Fprintf(out, "\n## %s\n\n| field | value | left out | meaning |\n|---|---|---|---|\n", title)
	for _, f := range fields {
		left := f.Default
		switch {
		case f.Required:
			left = "not possible"
		case left == "":
			left = "-"
		}
		fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", f.Name, value(f.Type), escape(left), escape(f.Doc))
	}
	for _, f := range fields {
		below := f.Name
		if path != "" {
			below = path + "." + f.Name
		}
		switch t := f.Type; {
		case t.Kind == config.KindObject:
			section(out, below, t.Fields)
		case t.Kind == config.KindList && t.Of.Kind == config.KindObject:
			section(out, below+"[]", t.Of.Fields)
		}
	}
}

// value says what may be written.
func value(t config.Type) string {
	text := ""
	switch t.Kind {
	case config.KindText:
		text = "text"
	case config.KindWord:
		text = "`" + strings.Join(t.Words, "`, `") + "`"
	case config.KindWhole:
		text = "whole number, " + t.Least + " to " + t.Most
	case config.KindNumber:
		text = "number, " + t.Least + " to " + t.Most
	case config.KindSize:
		text = "size"
	case config.KindTime:
		text = "time up to " + t.Most
		if least, err := strconv.Atoi(strings.TrimSuffix(t.Least, "ns")); err != nil || least > 1 {
			text = "time, " + t.Least + " to " + t.Most
		}
	case config.KindFlag:
		text = "`true`, `false`"
	case config.KindList:
		if text = "list"; t.Of.Kind != config.KindObject {
			text = "list of: " + value(*t.Of)
		}
	case config.KindMap:
		text = "mapping to: " + value(*t.Of)
	case config.KindObject:
		text = "mapping"
	}
	if t.Example != "" {
		text += ", such as `" + t.Example + "`"
	}
	return escape(text)
}

func escape(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
