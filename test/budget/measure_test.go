// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package budget_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
)

// key is what a measure is about: its kind, and the package, type or file.
type key struct{ kind, name string }

// tree counts what the budget bounds. Tests, generated files and folders without product code do not count.
type tree struct {
	counts   map[key]int
	embedded map[string][]string // by struct: what it embeds, as pkg.Type
	untagged map[string]bool     // structs with a field that has no tag
	files    int
}

// folders without product code; a name that begins with a dot, or testdata, is left out anywhere.
var leftOut = []string{"sim", "lab", "test", "tools", "bin"}

// modelPackage declares the names of backends, and configPackage lists them. backendPackage and those below it decide
// by them.
const modelPackage, configPackage, backendPackage = "sharing", "sharing/config", "sharing/backend"

func measure(files fs.FS) (*tree, error) {
	t := &tree{counts: map[key]int{}, embedded: map[string][]string{}, untagged: map[string]bool{}}
	err := fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("walk %q: %w", name, err)
		case e.IsDir():
			hidden := name != "." && strings.HasPrefix(e.Name(), ".")
			if hidden || e.Name() == "testdata" || slices.Contains(leftOut, name) {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		src, err := fs.ReadFile(files, name)
		if err != nil {
			return fmt.Errorf("read %q: %w", name, err)
		}
		return t.file(name, src)
	})
	t.countEmbedding()
	return t, err
}

func (t *tree) file(name string, src []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments)
	if err != nil {
		return fmt.Errorf("parse %q: %w", name, err)
	}
	if ast.IsGenerated(file) {
		return nil
	}
	t.files++
	pkg, lines := path.Dir(name), bytes.Count(src, []byte("\n"))
	t.counts[key{"lines", pkg}] += lines
	if path.Base(name) == "main.go" {
		t.counts[key{"main", name}] += lines
	}
	imports := importNames(file)
	ast.Inspect(file, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.TypeSpec:
			if s, ok := x.Type.(*ast.StructType); ok {
				t.structure(pkg, pkg+"."+x.Name.Name, s, imports)
			}
		case *ast.FuncDecl:
			if name := receiver(x); name != "" {
				t.counts[key{"methods", pkg + "." + name}]++
			}
		case *ast.SelectorExpr:
			if id, ok := x.X.(*ast.Ident); ok && imports[id.Name] == modelPackage && isBackend(x.Sel.Name) &&
				pkg != configPackage && pkg != backendPackage && !strings.HasPrefix(pkg, backendPackage+"/") {
				t.counts[key{"backends", pkg}]++
			}
		}
		return true
	})
	return nil
}

// structure counts the fields of a struct, and notes what it embeds.
func (t *tree) structure(pkg, name string, s *ast.StructType, imports map[string]string) {
	for _, f := range s.Fields.List {
		t.counts[key{"fields", name}] += max(1, len(f.Names))
		t.untagged[name] = t.untagged[name] || f.Tag == nil
		if len(f.Names) > 0 {
			continue
		}
		typ := f.Type
		if star, ok := typ.(*ast.StarExpr); ok {
			typ = star.X
		}
		switch x := typ.(type) {
		case *ast.Ident:
			t.embedded[name] = append(t.embedded[name], pkg+"."+x.Name)
		case *ast.SelectorExpr:
			if id, ok := x.X.(*ast.Ident); ok {
				t.embedded[name] = append(t.embedded[name], imports[id.Name]+"."+x.Sel.Name)
			}
		}
	}
}

// countEmbedding counts by struct how many types it embeds that are over their own bounds.
func (t *tree) countEmbedding() {
	for name, all := range t.embedded {
		for _, of := range all {
			if t.counts[key{"fields", of}] > bounds["fields"] || t.counts[key{"methods", of}] > bounds["methods"] {
				t.counts[key{"embeds", name}]++
			}
		}
	}
}

// receiver is the type's name of a method; empty for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	typ := f.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// importNames maps the names that a file uses to packages of this module, without the module's path.
func importNames(file *ast.File) map[string]string {
	const module = "github.com/kerf-gpu/kerf/"
	names := map[string]string{}
	for _, i := range file.Imports {
		pkg, own := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module)
		if !own {
			continue
		}
		name := path.Base(pkg)
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = pkg
	}
	return names
}

// isBackend tells the names of the constants. BackendList is a type.
func isBackend(name string) bool {
	which, ok := strings.CutPrefix(name, "Backend")
	return ok && which != "List" && len(which) > 0 && unicode.IsUpper(rune(which[0]))
}

// over is what exceeds its bound, in order.
func (t *tree) over() map[key]int {
	over := maps.Clone(t.counts)
	maps.DeleteFunc(over, func(k key, n int) bool {
		_, format := formats[k.name]
		return n <= boundOf(k) || k.kind == "fields" && format
	})
	return over
}
