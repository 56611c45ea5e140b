// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"fmt"
	"maps"
	"reflect"
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
	if text("spec", "group") != gpunode.Group || text("spec", "names", "kind") != gpunode.Kind || text("spec", "names", "plural") != gpunode.Resource || text("spec", "scope") != "Cluster" {
		t.Errorf("it is of %v", crd["spec"])
	}
	versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	version := versions[0].(map[string]any)
	if len(versions) != 1 || version["name"] != gpunode.Version {
		t.Fatalf("versions %v", versions)
	}
	status, ok, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "status")
	if !ok || err != nil {
		t.Fatalf("no status in %v: %v", version, err)
	}
	if d := cmp.Diff(fieldsOf("status", reflect.TypeFor[gpunode.Status]()), schemaOf("status", status)); d != "" {
		t.Errorf("fields (-of the program +of the schema):\n%s", d)
	}
	columns, _, _ := unstructured.NestedSlice(version, "additionalPrinterColumns")
	known := schemaOf(".status", status)
	for _, c := range columns {
		path := strings.ReplaceAll(c.(map[string]any)["jsonPath"].(string), "[0]", "[]")
		if strings.HasPrefix(path, ".status") && !slices.ContainsFunc(known, func(s string) bool { return strings.HasPrefix(s, path+" ") }) {
			t.Errorf("column %v shows no field", c)
		}
	}
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
	case reflect.Uint64:
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
