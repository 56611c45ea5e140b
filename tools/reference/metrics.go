// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// metric is one name that is exposed.
type metric struct {
	name, help, kind, program string
	labels                    []string
}

var metricName = regexp.MustCompile(`^kerf_[a-z0-9_]+[a-z0-9]$`)

// metrics are those that the code declares: calls with a name and, after it, a help; and options with Name and Help.
func (s *source) metrics() ([]metric, error) {
	found := map[string]metric{}
	for _, f := range s.files {
		shared := listsIn(s, f, f.tree, nil)
		for _, decl := range f.tree.Decls {
			lists := maps.Clone(shared)
			maps.Copy(lists, listsIn(s, f, decl, shared)) // functions of one file use the same name for several lists
			ast.Inspect(decl, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if m, ok := s.metric(f, call, lists); ok {
					m.program = program(f.path)
					found[m.name] = m
				}
				return true
			})
		}
	}
	var unknown []string
	for _, f := range s.files {
		ast.Inspect(f.tree, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if name := s.textOf(f, lit, ok); metricName.MatchString(name) && found[name].name == "" &&
				!derived(name, found) {
				unknown = append(unknown, name+" in "+f.path)
			}
			return true
		})
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("metrics without a declaration with a help: %s", strings.Join(unknown, ", "))
	}
	var out []metric
	for _, m := range found {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b metric) int { return strings.Compare(a.program+a.name, b.program+b.name) })
	return out, nil
}

// derived is true for what Prometheus makes of a histogram's name.
func derived(name string, found map[string]metric) bool {
	for _, end := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, end); ok && found[base].kind == "histogram" {
			return true
		}
	}
	return false
}

func (s *source) textOf(f file, lit *ast.BasicLit, ok bool) string {
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	return s.text(f.pkg, lit)
}

// metric is what a call declares.
func (s *source) metric(f file, call *ast.CallExpr, lists map[string][]string) (metric, bool) {
	for i, arg := range call.Args {
		if name := s.text(f.pkg, arg); metricName.MatchString(name) && i+1 < len(call.Args) {
			help := s.text(f.pkg, call.Args[i+1])
			if !strings.Contains(help, " ") {
				continue
			}
			m := metric{name: name, help: help, kind: kindBy(called(call), name), labels: s.receiver(f, call, lists)}
			for _, l := range call.Args[i+2:] {
				m.labels = append(m.labels, s.list(f, l, lists)...)
			}
			return m, true
		}
		if name, help := s.options(f, arg); metricName.MatchString(name) && help != "" {
			m := metric{name: name, help: help, kind: kindBy(called(call), name)}
			for _, l := range call.Args[i+1:] {
				m.labels = append(m.labels, s.list(f, l, lists)...)
			}
			return m, true
		}
	}
	return metric{}, false
}

// receiver are the labels that the value holds whose method makes the metric. Its method "and" adds one.
func (s *source) receiver(f file, call *ast.CallExpr, lists map[string][]string) []string {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	inner, ok := method.X.(*ast.CallExpr)
	if !ok {
		return s.list(f, method.X, lists)
	}
	out := slices.Clone(lists[called(inner)])
	if called(inner) == "and" && len(inner.Args) > 0 {
		out = append(s.receiver(f, inner, lists), s.text(f.pkg, inner.Args[0]))
	}
	return out
}

// options are Name and Help of a literal, or of the address of one.
func (s *source) options(f file, e ast.Expr) (name, help string) {
	if u, ok := e.(*ast.UnaryExpr); ok {
		e = u.X
	}
	c, ok := e.(*ast.CompositeLit)
	if !ok {
		return "", ""
	}
	for _, el := range c.Elts {
		kv, ok := el.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := kv.Key.(*ast.Ident); ok {
			switch key.Name {
			case "Name":
				name = s.text(f.pkg, kv.Value)
			case "Help":
				help = s.text(f.pkg, kv.Value)
			}
		}
	}
	return name, help
}

// called is the name of what a call calls.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// kindBy is a metric's kind, by the function that makes it, else by its name.
func kindBy(maker, name string) string {
	maker = strings.ToLower(maker)
	for _, kind := range []string{"histogram", "counter", "gauge"} {
		if strings.Contains(maker, kind) {
			return kind
		}
	}
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}

// list are the texts of a literal, of a list of them, or of a name that stands for one.
func (s *source) list(f file, e ast.Expr, lists map[string][]string) []string {
	switch e := e.(type) {
	case *ast.BasicLit:
		return []string{s.text(f.pkg, e)}
	case *ast.Ident:
		return lists[e.Name]
	case *ast.CompositeLit:
		var out []string
		for _, el := range e.Elts {
			if text := s.text(f.pkg, el); text != "" {
				out = append(out, text)
			} else if inner, ok := el.(*ast.CompositeLit); ok {
				out = append(out, s.list(f, inner, lists)...)
			}
		}
		return out
	}
	return nil
}

// listOfCase is the list of texts that a switch returns for each name of a case.
func (s *source) listOfCase(f file, c *ast.CaseClause) map[string][]string {
	out := map[string][]string{}
	r, ok := c.Body[0].(*ast.ReturnStmt)
	if !ok || len(r.Results) != 1 {
		return nil
	}
	list, ok := r.Results[0].(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, e := range c.List {
		if name, ok := e.(*ast.Ident); ok {
			out[name.Name] = s.list(f, list, nil)
		}
	}
	return out
}

// listsIn are the lists of texts to which a part of a file gives names. These are variables, functions that return a
// list, and cases of a switch that return one. known are such functions and cases outside the part.
func listsIn(s *source, f file, part ast.Node, known map[string][]string) map[string][]string {
	out := map[string][]string{}
	ast.Inspect(part, func(n ast.Node) bool {
		if d, ok := n.(*ast.FuncDecl); ok && d.Body != nil && len(d.Body.List) == 1 {
			if r, ok := d.Body.List[0].(*ast.ReturnStmt); ok && len(r.Results) == 1 {
				if c, ok := r.Results[0].(*ast.CompositeLit); ok {
					out[d.Name.Name] = s.list(f, c, nil)
				}
			}
		}
		if c, ok := n.(*ast.CaseClause); ok && len(c.Body) == 1 {
			maps.Copy(out, s.listOfCase(f, c))
		}
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i := range a.Lhs {
				if name, ok := a.Lhs[i].(*ast.Ident); ok {
					switch v := a.Rhs[i].(type) {
					case *ast.CompositeLit:
						out[name.Name] = s.list(f, v, nil)
					case *ast.CallExpr:
						out[name.Name] = known[called(v)]
					}
				}
			}
		}
		return true
	})
	return out
}
