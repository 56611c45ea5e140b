// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/reference"
)

var write = flag.Bool("write", false, "write the files again")

const root = "../../.."

func made(t *testing.T) []byte {
	t.Helper()
	s, err := reference.Schema()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What is shipped is what would be made now.
func TestCurrent(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]byte{"deploy/sharingconfig.schema.json": made(t),
		"docs/reference/configuration.md": reference.Page(), "docs/reference/renames.md": renamesPage(t)} {
		path := filepath.Join(root, name)
		if *write {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not current (%v): run 'make generate' and commit the result", name, err)
		}
	}
}

// renamesPage is the page of renamed things with the section on the SharingConfig as it is made now.
func renamesPage(t *testing.T) []byte {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/renames.md"))
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := bytes.Cut(page, []byte("## SharingConfig\n"))
	_, tail, more := bytes.Cut(rest, []byte("\n## "))
	if !found || !more {
		t.Fatal("docs/reference/renames.md has no section on the SharingConfig")
	}
	return slices.Concat(head, reference.Renames(), []byte("\n## "), tail)
}

// The schema takes what the decoder takes, and refuses what is wrong in one field.
func TestSchema(t *testing.T) {
	t.Parallel()
	var s map[string]any
	if err := json.Unmarshal(made(t), &s); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := config.Decode(text); err != nil {
		t.Fatal(err)
	}
	document := func() any {
		var v any
		if err := yaml.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if why := invalid(s, document(), "document"); why != "" {
		t.Errorf("the full document: %s", why)
	}
	if missing := unused(config.Describe(), document(), ""); len(missing) > 0 {
		t.Errorf("testdata/full.yaml does not use %q", missing)
	}
	spoil := func(path ...any) string {
		v := document()
		at := v
		for _, step := range path[:len(path)-2] {
			switch step := step.(type) {
			case string:
				at = at.(map[string]any)[step]
			case int:
				at = at.([]any)[step]
			}
		}
		at.(map[string]any)[path[len(path)-2].(string)] = path[len(path)-1]
		return invalid(s, v, "document")
	}
	for name, why := range map[string]string{
		"unknown field": spoil("spec", "pols", 1), "wrong word": spoil("spec", "pools", 0, "mode", "hole"),
		"wrong type": spoil("spec", "pools", 0, "backends", "driver"),
		"version":    spoil("apiVersion", "v1"), "too large": spoil("spec", "profiles", 0, "priority", 2_000_000_000),
		"no time": spoil("spec", "pools", 0, "idle", "after", "soon"),
		"no size": spoil("spec", "profiles", 0, "memory", "lots"), "no flag": spoil("spec", "pools", 0, "migReset",
			"yes"),
	} {
		if why == "" {
			t.Errorf("%s: the schema takes it", name)
		}
	}
}

// unused are the fields that a value does not have.
func unused(t config.Type, v any, path string) (out []string) {
	switch t.Kind {
	case config.KindObject:
		for _, f := range t.Fields {
			got := entries(v, f.Name)
			if len(got) == 0 {
				out = append(out, path+f.Name)
				continue
			}
			below := f.Type
			if below.Kind == config.KindList {
				below = *below.Of
			}
			out = append(out, unused(below, got, path+f.Name+".")...)
		}
	default:
	}
	return out
}

// entries are the values of a field in any of the mappings.
func entries(v any, name string) (out []any) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			out = append(out, entries(one, name)...)
		}
	case map[string]any:
		if one, ok := v[name]; ok {
			out = append(out, one)
		}
	}
	return out
}

// invalid is why a value is not valid by the keywords that the schema uses.
func invalid(s map[string]any, v any, path string) string {
	kinds := s["type"].([]any)
	if !slices.Contains(kinds, any(kind(v))) && (kind(v) != "integer" || !slices.Contains(kinds, any("number"))) {
		return fmt.Sprintf("%s is %s, not %v", path, kind(v), kinds)
	}
	switch v := v.(type) {
	case string:
		if enum, ok := s["enum"].([]any); ok && !slices.Contains(enum, any(v)) {
			return path + " is none of the words"
		}
		if p, ok := s["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(v) {
			return path + " does not match " + p
		}
	case int, float64:
		n := asFloat(v)
		if least, ok := s["minimum"].(float64); ok && n < least {
			return path + " is too small"
		}
		if most, ok := s["maximum"].(float64); ok && n > most {
			return path + " is too large"
		}
	case []any:
		for i, one := range v {
			if why := invalid(s["items"].(map[string]any), one, fmt.Sprintf("%s[%d]", path, i)); why != "" {
				return why
			}
		}
	case map[string]any:
		return invalidMap(s, v, path)
	}
	return ""
}

func invalidMap(s map[string]any, v map[string]any, path string) string {
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := v[name.(string)]; !ok {
			return fmt.Sprintf("%s lacks %v", path, name)
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for name, one := range v {
		p, ok := properties[name].(map[string]any)
		if !ok {
			if p, ok = s["additionalProperties"].(map[string]any); !ok {
				return path + "." + name + " is not known"
			}
		}
		if why := invalid(p, one, path+"."+name); why != "" {
			return why
		}
	}
	return ""
}

func kind(v any) string {
	switch v := v.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case int:
		return "integer"
	case float64:
		if v == math.Trunc(v) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "null"
}

func asFloat(v any) float64 {
	if i, ok := v.(int); ok {
		return float64(i)
	}
	f, _ := v.(float64)
	return f
}
