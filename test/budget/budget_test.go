// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package budget_test bounds how large the parts of the product may be: structs, types, packages and programs. What is
// over a bound today is in testdata/allowed.txt, with its size. That list may only shrink.
package budget_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const root, allowedFile = "../..", "testdata/allowed.txt"

var update = flag.Bool("update", false, "lower the numbers in "+allowedFile+", and remove what is within its bound")

// bounds is the budget: the largest number of each kind.
var bounds = map[string]int{
	"fields":   15,   // of a struct; an embedded type is one
	"methods":  25,   // of a type
	"lines":    4000, // of a package
	"main":     60,   // of a main.go
	"embeds":   0,    // types over a bound that a struct embeds
	"backends": 0,    // mentions of a backend's name outside sharing/backend
}

// formats are wire, API and checkpoint types. Each has the fields of its format, and each field has a tag.
var formats = map[string]string{
	"api/gpunode.GPU":           "custom resource GPUNode",
	"internal/present.GPU":      "JSON of kerf status",
	"internal/present.Grant":    "JSON of kerf status",
	"sharing/audit.Entry":       "line of the audit log",
	"sharing/config.Pool":       "YAML of SharingConfig",
	"sharing/node/record.Grant": "checkpoint",
	"sharing/simulate.Result":   "JSON of kerf simulate",
}

// programLines bounds a package below cmd/, which wires other packages together.
const programLines = 400

func boundOf(k key) int {
	if k.kind == "lines" && strings.HasPrefix(k.name, "cmd/") {
		return programLines
	}
	return bounds[k.kind]
}

func TestBudget(t *testing.T) {
	have, err := measure(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if have.files < 100 {
		t.Fatalf("%d files found below %q", have.files, root)
	}
	text, err := os.ReadFile(allowedFile)
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		allowed = lowered(allowed, have.over())
		// #nosec G306 -- a source file
		if err := os.WriteFile(allowedFile, []byte(format(allowed)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, wrong := range compare(allowed, have.over()) {
		t.Error(wrong)
	}
	for name, format := range formats {
		if have.untagged[name] || have.counts[key{"fields", name}] <= bounds["fields"] {
			t.Errorf("%s (%s) has a field without a tag, or needs no exception", name, format)
		}
	}
}

// compare says what is larger than allowed, and what the list still allows without need.
func compare(allowed, over map[key]int) []string {
	var wrong []string
	for k, n := range over {
		if n > allowed[k] {
			wrong = append(wrong, fmt.Sprintf("%s %s: %d, at most %d", k.kind, k.name, n, max(allowed[k], boundOf(k))))
		}
	}
	for k, n := range allowed {
		if over[k] < n {
			wrong = append(wrong,
				fmt.Sprintf("%s %s: %d is allowed, and it has less: run 'go test ./test/budget -update'", k.kind,
					k.name, n))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// lowered never raises a number, and adds none.
func lowered(allowed, over map[key]int) map[key]int {
	out := map[key]int{}
	for k, n := range allowed {
		if n = min(n, over[k]); n > 0 {
			out[k] = n
		}
	}
	return out
}

// parse reads lines of kind, name and number.
func parse(text string) (map[key]int, error) {
	out := map[key]int{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var k key
		var n int
		if _, err := fmt.Sscanf(line, "%s %s %d", &k.kind, &k.name, &n); err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		if _, known := bounds[k.kind]; !known || out[k] != 0 || n <= boundOf(k) {
			return nil, fmt.Errorf("line %q: an unknown kind, a line given twice, or a number within the bound", line)
		}
		out[k] = n
	}
	return out, nil
}

func format(all map[key]int) string {
	var b strings.Builder
	b.WriteString("# What is over its bound (see budget_test.go), and by which size. These numbers may " +
		"only become smaller.\n")
	keys := slices.SortedFunc(maps.Keys(all), func(x, y key) int {
		return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.name, y.name))
	})
	for _, k := range keys {
		fmt.Fprintf(&b, "%s %s %d\n", k.kind, k.name, all[k])
	}
	return b.String()
}

// The budget sees each kind of excess.
func TestBudgetSees(t *testing.T) {
	long := strings.Repeat("\n", 61)
	methods := ""
	for i := range 26 {
		methods += fmt.Sprintf("func (l *Large[T]) M%d() {}\n", i)
	}
	fields := "A0" + func() (s string) {
		for i := range 15 {
			s += fmt.Sprintf(", A%d", i+1)
		}
		return s
	}() + " int"
	have, err := measure(fstest.MapFS{
		"a/a.go": {Data: []byte("package a\ntype Large[T any] struct{ x T }\n" + methods +
			"type Wide struct { " + fields + " }\n")},
		"a/a_test.go": {Data: []byte("package a\ntype Test struct { " + fields + " }\n")},
		"a/pb.go": {Data: []byte("// Code generated by hand. DO NOT EDIT.\npackage a\n" +
			"type Made struct { " + fields + " }\n")},
		"b/b.go": {Data: []byte("package b\nimport (\n\"github.com/kerf-gpu/kerf/a\"\n" +
			"\"github.com/kerf-gpu/kerf/sharing\"\n)\ntype B struct { *a.Wide }\nvar _ = sharing.BackendMPS\n")},
		"cmd/p/main.go": {Data: []byte("package main\n" + long)},
		"cmd/p/more.go": {Data: []byte("package main\n" + strings.Repeat("\n", 400))},
		"sharing/backend/x.go": {Data: []byte("package backend\nimport \"github.com/kerf-gpu/kerf/sharing\"\n" +
			"var _ = sharing.BackendMPS\n")},
		"sharing/backend/y/y.go": {Data: []byte("package y\nimport \"github.com/kerf-gpu/kerf/sharing\"\n" +
			"var _ = sharing.BackendMPS\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[key]int{
		{"methods", "a.Large"}: 26, {"fields", "a.Wide"}: 16, {"embeds", "b.B"}: 1, {"backends", "b"}: 1,
		{"main", "cmd/p/main.go"}: 62, {"lines", "cmd/p"}: 463,
	}
	if got := have.over(); !maps.Equal(got, want) {
		t.Errorf("over: %v, want %v", got, want)
	}
}

// The list only shrinks: an update raises no number and adds no line.
func TestAllowedOnlyShrinks(t *testing.T) {
	a, b, c := key{"fields", "p.A"}, key{"fields", "p.B"}, key{"fields", "p.C"}
	allowed, over := map[key]int{a: 30, b: 20}, map[key]int{a: 40, c: 50}
	if got := lowered(allowed, over); !maps.Equal(got, map[key]int{a: 30}) {
		t.Errorf("lowered: %v", got)
	}
	if got := compare(allowed, over); len(got) != 3 {
		t.Errorf("compare: %q", got)
	}
	if got := compare(over, over); len(got) != 0 {
		t.Errorf("compare with itself: %q", got)
	}
	for _, text := range []string{"fields p.A 15\n", "colors p.A 99\n", "fields p.A 30\nfields p.A 31\n",
		"fields p.A\n"} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	if all, err := parse(format(allowed)); err != nil || !maps.Equal(all, allowed) {
		t.Errorf("read again: %v, %v", all, err)
	}
}
