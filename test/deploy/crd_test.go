// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kerf-gpu/kerf/api/gpunode"
)

// TestSchemaOfGPUNode: the schema has the fields that the agent writes, of their types, and no others. The API server
// drops or refuses what it does not know.
func TestSchemaOfGPUNode(t *testing.T) {
	crd := one[*unstructured.Unstructured](t).Object
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(crd, path...)
		return s
	}
	if text("spec", "group") != gpunode.Group || text("spec", "names", "kind") != gpunode.Kind ||
		text("spec", "names", "plural") != gpunode.Resource || text("spec", "scope") != "Cluster" {
		t.Errorf("it is of %v", crd["spec"])
	}
	versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	version := versions[0].(map[string]any)
	if len(versions) != 1 || version["name"] != gpunode.Version {
		t.Fatalf("versions %v", versions)
	}
	status := propertyOf(t, version, "status")
	for name, of := range map[string]reflect.Type{"status": reflect.TypeFor[gpunode.Status](),
		"spec": reflect.TypeFor[gpunode.Spec]()} {
		fields := schemaOf(name, present(propertyOf(t, version, name)))
		if d := cmp.Diff(fieldsOf(name, of), fields); d != "" {
			t.Errorf("fields (-of the program +of the schema):\n%s", d)
		}
	}
	columns, _, _ := unstructured.NestedSlice(version, "additionalPrinterColumns")
	known := schemaOf(".status", present(status))
	for _, c := range columns {
		path := column.ReplaceAllString(c.(map[string]any)["jsonPath"].(string), "[]")
		if strings.HasPrefix(path, ".status") &&
			!slices.ContainsFunc(known, func(s string) bool { return strings.HasPrefix(s, path+" ") }) {
			t.Errorf("column %v shows no field", c)
		}
	}
}

// column is the index or filter of a list in a column's path.
var column = regexp.MustCompile(`\[(0|\?[^]]*)\]`)

// TestEarlierFieldsOfGPUNode: the schema keeps every field of an earlier agent, which the API server would drop.
func TestEarlierFieldsOfGPUNode(t *testing.T) {
	crd := one[*unstructured.Unstructured](t).Object
	versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	version := versions[0].(map[string]any)
	text, err := os.ReadFile("../../api/gpunode/testdata/earlier.json")
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"spec", "status"} {
		known := map[string]bool{}
		for _, f := range schemaOf(name, propertyOf(t, version, name)) {
			path, _, _ := strings.Cut(f, " ")
			known[path] = true
		}
		found := leavesOf(name, o[name], known)
		if len(found) == 0 {
			t.Errorf("the recorded object has no %s", name)
		}
		for _, path := range found {
			if !known[path] {
				t.Errorf("the schema has no field %s", path)
			}
		}
	}
}

// leavesOf lists the fields of a value in the form of schemaOf, without their types.
func leavesOf(path string, value any, known map[string]bool) (out []string) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			if at := path + "{}"; known[at] || slices.ContainsFunc(slices.Collect(maps.Keys(known)),
				func(k string) bool { return strings.HasPrefix(k, at+".") }) {
				out = append(out, leavesOf(at, inner, known)...)
				continue
			}
			out = append(out, leavesOf(path+"."+name, inner, known)...)
		}
	case []any:
		for _, inner := range v {
			out = append(out, leavesOf(path+"[]", inner, known)...)
		}
	default:
		return []string{path}
	}
	return out
}

// propertyOf is the schema of spec or status.
func propertyOf(t *testing.T, version map[string]any, name string) map[string]any {
	t.Helper()
	schema, ok, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", name)
	if !ok || err != nil {
		t.Fatalf("no %s in %v: %v", name, version, err)
	}
	return schema
}

// present is a schema without its deprecated fields.
func present(schema map[string]any) map[string]any {
	out := maps.Clone(schema)
	for _, name := range []string{"items", "additionalProperties"} {
		if inner, ok := out[name].(map[string]any); ok {
			out[name] = present(inner)
		}
	}
	if properties, ok := out["properties"].(map[string]any); ok {
		kept := map[string]any{}
		for name, p := range properties {
			p := p.(map[string]any)
			if text, _ := p["description"].(string); !strings.HasPrefix(text, "deprecated: ") {
				kept[name] = present(p)
			}
		}
		out["properties"] = kept
	}
	return out
}

// fieldsOf lists a Go type's fields as JSON has them, with their types.
func fieldsOf(path string, of reflect.Type) []string {
	switch of.Kind() {
	case reflect.Pointer:
		return fieldsOf(path, of.Elem())
	case reflect.Slice:
		return fieldsOf(path+"[]", of.Elem())
	case reflect.Map:
		return fieldsOf(path+"{}", of.Elem())
	case reflect.Struct:
		var out []string
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			out = append(out, fieldsOf(path+"."+name, f.Type)...)
		}
		slices.Sort(out)
		return out
	case reflect.String:
		return []string{path + " string"}
	case reflect.Bool:
		return []string{path + " boolean"}
	case reflect.Int:
		return []string{path + " integer"}
	case reflect.Int64:
		return []string{path + " integer int64"}
	default:
		return []string{fmt.Sprintf("%s %s", path, of)}
	}
}

// schemaOf lists a schema's fields in the same way.
func schemaOf(path string, schema map[string]any) []string {
	switch schema["type"] {
	case "array":
		items, _ := schema["items"].(map[string]any)
		return schemaOf(path+"[]", items)
	case "object":
		if values, ok := schema["additionalProperties"].(map[string]any); ok {
			return schemaOf(path+"{}", values)
		}
		properties, _ := schema["properties"].(map[string]any)
		var out []string
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			out = append(out, schemaOf(path+"."+name, properties[name].(map[string]any))...)
		}
		slices.Sort(out)
		return out
	}
	out := fmt.Sprintf("%s %v", path, schema["type"])
	if f := schema["format"]; f != nil {
		out += fmt.Sprint(" ", f)
	}
	return []string{out}
}
