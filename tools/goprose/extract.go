// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// passage is one paragraph of prose on one line, because Vale finds no phrase that two lines share.
type passage struct {
	text string
	// starts are the offsets in text at which a line of the file begins, and lines their numbers.
	starts, lines []int
}

// line returns the line of the file for an offset in the text.
func (p *passage) line(offset int) int {
	i, found := slices.BinarySearch(p.starts, offset)
	if !found && i > 0 {
		i--
	}
	return p.lines[i]
}

func (p *passage) add(text string, line int) {
	if p.text != "" {
		p.text += " "
	}
	p.starts, p.lines = append(p.starts, len(p.text)), append(p.lines, line)
	p.text += text
}

// text is the prose of one file.
type text struct {
	file              string
	comments, strings []passage
}

var (
	directive = regexp.MustCompile(`^//(go:|nolint|export |lint:|line )|^// ?(#nosec|\+build)`)
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	license   = regexp.MustCompile(`^// (Copyright 2026 The Kerf Authors|SPDX-License-Identifier: .*)$`)
	item      = regexp.MustCompile(`^( *(- |\d+\. ))`)
	words     = regexp.MustCompile(`\p{L}{2,} .*\p{L}{2,}`)
)

// extractTree reads all Go files below the tree that people write.
func extractTree(tree string) ([]text, error) {
	var texts []text
	err := filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", ".cache", "bin", "testdata"}, entry.Name()) {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if generated.Match(source) {
			return nil
		}
		name, err := filepath.Rel(tree, path)
		if err != nil {
			return err
		}
		t, err := extract(name, source)
		texts = append(texts, t)
		return err
	})
	return texts, err
}

// extract returns the paragraphs of the comments, and for a file that is no test the strings that have several words.
func extract(name string, source []byte) (text, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return text{}, fmt.Errorf("parse %s: %w", name, err)
	}
	t := text{file: name}
	for _, group := range file.Comments {
		t.comments = append(t.comments, paragraphs(fset, group)...)
	}
	if strings.HasSuffix(name, "_test.go") {
		return t, nil
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.BasicLit:
			if n.Kind != token.STRING {
				return true
			}
			s, err := strconv.Unquote(n.Value)
			line := fset.Position(n.Pos()).Line
			for part := range strings.SplitSeq(s, "\n") {
				if words.MatchString(part) && err == nil {
					t.strings = append(t.strings, passage{text: part, starts: []int{0}, lines: []int{line}})
				}
				if strings.HasPrefix(n.Value, "`") {
					line++
				}
			}
		}
		return true
	})
	return t, nil
}

// paragraphs leaves out directives, the license, and indented code.
func paragraphs(fset *token.FileSet, group *ast.CommentGroup) []passage {
	var out []passage
	var p passage
	end := func() {
		if p.text != "" {
			out = append(out, p)
		}
		p = passage{}
	}
	for _, c := range group.List {
		line := fset.Position(c.Pos()).Line
		if directive.MatchString(c.Text) || license.MatchString(c.Text) {
			end()
			continue
		}
		for i, l := range strings.Split(strings.TrimSuffix(strings.TrimPrefix(c.Text, "/*"), "*/"), "\n") {
			l = strings.TrimPrefix(strings.TrimPrefix(l, "//"), " ")
			mark := item.FindString(l)
			l = l[len(mark):]
			if mark != "" || strings.TrimSpace(l) == "" || strings.HasPrefix(l, "\t") || strings.HasPrefix(l, "# ") {
				end()
			}
			if l = strings.TrimPrefix(l, "# "); strings.TrimSpace(l) != "" && !strings.HasPrefix(l, "\t") {
				p.add(strings.TrimSpace(l), line+i)
			}
		}
	}
	end()
	return out
}
