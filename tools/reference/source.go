// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// source is the code that programs are made of, without its tests.
type source struct {
	files  []file
	consts map[string]constant // by package and name
	// charts are the texts of the chart's templates, by path.
	charts map[string]string
}

type file struct {
	path, pkg string
	tree      *ast.File
}

// constant is one that is declared with a value.
type constant struct {
	file, pkg, name, doc string
	value                ast.Expr
}

// folders are those with the programs' code, and templates is that of the chart's.
func folders() []string {
	return []string{"api", "cmd", "deviceplugin", "hooks", "internal", "mig", "monitor", "scheduler", "sharing"}
}

const templates = "deploy/chart/templates"

// read parses the code below root.
func read(root fs.FS) (source, error) {
	s := source{consts: map[string]constant{}, charts: map[string]string{}}
	for _, dir := range append(folders(), templates) {
		if err := fs.WalkDir(root, dir, func(name string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case e.IsDir():
				return nil
			}
			text, err := fs.ReadFile(root, name)
			if err != nil {
				return err
			}
			if dir == templates {
				s.charts[name] = string(text)
				return nil
			}
			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return nil
			}
			return s.parse(name, text)
		}); err != nil {
			return s, fmt.Errorf("read %s: %w", dir, err)
		}
	}
	return s, nil
}

func (s *source) parse(name string, text []byte) error {
	tree, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
	if err != nil {
		return err
	}
	f := file{path: name, pkg: path.Base(path.Dir(name)), tree: tree}
	s.files = append(s.files, f)
	for _, d := range tree.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			v, ok := spec.(*ast.ValueSpec)
			if !ok || v.Type != nil {
				continue
			}
			for i, n := range v.Names {
				if i >= len(v.Values) {
					continue
				}
				doc := v.Doc.Text()
				if doc == "" && len(g.Specs) == 1 {
					doc = g.Doc.Text()
				}
				s.consts[f.pkg+"."+n.Name] = constant{name, f.pkg, n.Name, sentence(doc), v.Values[i]}
			}
		}
	}
	return nil
}

// sentence is a comment in one line.
func sentence(doc string) string { return strings.Join(strings.Fields(doc), " ") }

// text is the value of an expression of texts, "" where it is none that is known here.
func (s *source) text(pkg string, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if v, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return v
		}
	case *ast.BinaryExpr:
		a, b := s.text(pkg, e.X), s.text(pkg, e.Y)
		if e.Op == token.ADD && a != "" && b != "" {
			return a + b
		}
	case *ast.Ident:
		if c, ok := s.consts[pkg+"."+e.Name]; ok {
			return s.text(pkg, c.value)
		}
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			if c, ok := s.consts[x.Name+"."+e.Sel.Name]; ok {
				return s.text(c.pkg, c.value)
			}
		}
	}
	return ""
}

// declared are the constants that is picks, by file and name.
func (s *source) declared(is func(constant) bool) []constant {
	var out []constant
	for _, c := range s.consts {
		if is(c) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b constant) int { return strings.Compare(a.file+" "+a.name, b.file+" "+b.name) })
	return out
}

// program is whose code a file is.
func program(name string) string {
	switch {
	case strings.HasPrefix(name, "scheduler/"), strings.HasPrefix(name, "sharing/scheduler/"):
		return "kerf-scheduler"
	case strings.HasPrefix(name, "monitor/exposition/"), strings.HasPrefix(name, "monitor/collect/"),
		strings.HasPrefix(name, "monitor/source/"), strings.HasPrefix(name, "monitor/service/"),
		strings.HasPrefix(name, "cmd/kerf-monitor/"):
		return "kerf-monitor"
	}
	return "kerf-agent"
}
