// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package identifiers_test rejects exported names with words that a reader has to decode.
// tools/vale/styles/Kerf/Never.yml rejects the same words in text.
package identifiers_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// never are parts of names. A verb's other forms and a noun's plural count, too.
var never = forms("told", "untold", "nobody", "somebody", "whoever", "beside", "anew", "mend", "mended", "mending",
	"hurt", "stranger", "intruder", "witness", "witnesses", "witnessed", "door", "keeper", "joint", "jointly", "lent",
	"cut", "cutting", "books", "holding", "fragment", "piece", "document", "mistake")

func forms(words ...string) map[string]bool {
	all := map[string]bool{}
	for _, w := range words {
		all[w] = true
		if !strings.HasSuffix(w, "s") {
			all[w+"s"] = true
		}
	}
	return all
}

// update lowers the numbers in allowedFile. It never raises one.
var update = flag.Bool("update", false, "lower the numbers in "+allowedFile)

// allowedFile has the number of such names that a package still has. These numbers may only shrink.
const allowedFile = "testdata/allowed.txt"

func TestExportedIdentifiers(t *testing.T) {
	have, found := map[string]int{}, map[string][]string{}
	files := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", ".cache", "bin", "testdata"}, entry.Name()) {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		names, err := check(path, source)
		dir, _ := filepath.Rel("../..", filepath.Dir(path))
		have[dir] += len(names)
		found[dir] = append(found[dir], names...)
		files++
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("only %d files were read", files)
	}
	data, err := os.ReadFile(allowedFile)
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := parse(string(data))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		for dir := range allowed {
			allowed[dir] = min(allowed[dir], have[dir])
		}
		// #nosec G306 -- a source file
		if err := os.WriteFile(allowedFile, []byte(format(allowed)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, wrong := range compare(allowed, have, found) {
		t.Error(wrong)
	}
}

func compare(allowed, have map[string]int, found map[string][]string) []string {
	var wrong []string
	for dir, n := range have {
		if n > allowed[dir] {
			wrong = append(wrong, found[dir]...)
		}
	}
	for dir, n := range allowed {
		if have[dir] < n {
			wrong = append(wrong, fmt.Sprintf("%s: %d names are allowed, and %d are there: run with -update", dir, n,
				have[dir]))
		}
	}
	return wrong
}

func parse(text string) (map[string]int, error) {
	out := map[string]int{}
	for line := range strings.Lines(text) {
		var dir string
		var n int
		if strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%s %d", &dir, &n); err != nil || n <= 0 || out[dir] > 0 {
			return nil, fmt.Errorf("line %q: want a package, once, and a number above 0", line)
		}
		out[dir] = n
	}
	return out, nil
}

func format(allowed map[string]int) string {
	out := "# Exported names that a package may still have with words of the never list. These numbers " +
		"may only shrink.\n"
	for _, dir := range slices.Sorted(maps.Keys(allowed)) {
		if n := allowed[dir]; n > 0 {
			out += fmt.Sprintf("%s %d\n", dir, n)
		}
	}
	return out
}

func TestAllowed(t *testing.T) {
	allowed, err := parse(format(map[string]int{"a": 2, "b": 1, "c": 0}))
	if err != nil || !maps.Equal(allowed, map[string]int{"a": 2, "b": 1}) {
		t.Fatalf("read back as %v, %v", allowed, err)
	}
	found := map[string][]string{"b": {"x", "y"}}
	if wrong := compare(allowed, map[string]int{"a": 2, "b": 2}, found); !slices.Equal(wrong, found["b"]) {
		t.Errorf("a name too many: %q", wrong)
	}
	if wrong := compare(allowed, map[string]int{"a": 1, "b": 1}, nil); len(wrong) != 1 {
		t.Errorf("a name fewer: %q", wrong)
	}
	for _, bad := range []string{"a 0\n", "a\n", "a 1\na 1\n"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// check returns the exported names that a file declares: at the top level, as methods, and as fields and methods of
// types.
func check(path string, source []byte) ([]string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []string
	name := func(ids ...*ast.Ident) {
		for _, id := range ids {
			for _, part := range parts(id.Name) {
				if id.IsExported() && never[part] {
					found = append(found, fmt.Sprintf("%s: %s contains %q: use the term of the glossary",
						fset.Position(id.Pos()), id.Name, part))
				}
			}
		}
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name(d.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					name(s.Names...)
				case *ast.TypeSpec:
					name(s.Name)
					ast.Inspect(s.Type, func(n ast.Node) bool {
						if field, ok := n.(*ast.Field); ok {
							name(field.Names...)
						}
						return true
					})
				}
			}
		}
	}
	return found, nil
}

// parts splits a name at its capitals, in lower case. Capitals in a row are one part: GPUSlice is gpu, slice.
func parts(name string) []string {
	var out []string
	runes := []rune(name)
	begin := 0
	for i := 1; i <= len(runes); i++ {
		if i < len(runes) {
			upper, before := unicode.IsUpper(runes[i]), unicode.IsUpper(runes[i-1])
			last := upper && before && i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if runes[i] != '_' && runes[i-1] != '_' && (!upper || before) && !last {
				continue
			}
		}
		out = append(out, strings.ToLower(string(runes[begin:i])))
		begin = i
	}
	return out
}

func TestCheck(t *testing.T) {
	const source = `package a
type Door struct { Keeper, fine int; In struct { Lent int } }
type Prefix interface { CutAll(Told int) }
const GPUPieces = 1
var documents, Cutter, Keep_Fragment_X = 1, 2, 3
func (Door) Untold() { Mistake := 1; _ = Mistake }
type mend struct { Hurt int }
func Documentation(joint int) {}
`
	found, err := check("a.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Door", "Keeper", "Lent", "CutAll", "Told", "GPUPieces", "Keep_Fragment_X", "Untold", "Hurt"}
	if len(found) != len(want) {
		t.Fatalf("found %q, want %q", found, want)
	}
	for i, f := range found {
		if !strings.Contains(f, ": "+want[i]+" contains ") {
			t.Errorf("found %q, want %s", f, want[i])
		}
	}
}
