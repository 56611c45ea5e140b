// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package layers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// pkg is what the checks need to know of one package.
type pkg struct {
	// path is relative to the module.
	path string
	// imports are those of the package itself, not of its tests: a test may reach down to anything.
	imports []string
	// comment is the package comment, of any file.
	comment string
	// acts are places where the code starts a goroutine or reads the clock.
	acts []string
}

// listed is the part of go list's answer that is used.
type listed struct {
	Dir, ImportPath                              string
	Imports                                      []string
	GoFiles, CgoFiles, TestGoFiles, XTestGoFiles []string
	Error                                        *struct{ Err string }
}

// load reads the packages of the module in dir. Packages that do not compile are read as far as they parse.
func load(ctx context.Context, dir string) ([]pkg, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "list", "-e",
		"-json=Dir,ImportPath,Imports,GoFiles,CgoFiles,TestGoFiles,XTestGoFiles,Error", "./...")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go list in %q: %w: %s", dir, err, stderr.String())
	}
	var pkgs []pkg
	decoder := json.NewDecoder(&stdout)
	for {
		var l listed
		if err := decoder.Decode(&l); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list in %q: %w", dir, err)
		}
		if len(l.GoFiles)+len(l.CgoFiles)+len(l.TestGoFiles)+len(l.XTestGoFiles) == 0 {
			if l.Error != nil {
				return nil, fmt.Errorf("package %q: %s", l.ImportPath, l.Error.Err)
			}
			continue
		}
		p, err := read(l)
		if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
}

// read parses the files of one package for what go list does not tell.
func read(l listed) (pkg, error) {
	p := pkg{path: relative(l.ImportPath), imports: l.Imports}
	own := slices.Concat(l.GoFiles, l.CgoFiles)
	for _, name := range slices.Concat(own, l.TestGoFiles, l.XTestGoFiles) {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, filepath.Join(l.Dir, name), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return pkg{}, fmt.Errorf("package %q: %w", l.ImportPath, err)
		}
		if file.Doc != nil && p.comment == "" {
			p.comment = file.Doc.Text()
		}
		if slices.Contains(own, name) {
			p.acts = append(p.acts, acts(files, file)...)
		}
	}
	return p, nil
}

// acts finds goroutines and readings of the clock. The package name is taken as written: renaming "time"
// to hide it would be seen in review.
func acts(files *token.FileSet, file *ast.File) []string {
	var found []string
	add := func(node ast.Node, what string) {
		at := files.Position(node.Pos())
		found = append(found, fmt.Sprintf("%s:%d %s", filepath.Base(at.Filename), at.Line, what))
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.GoStmt:
			add(node, "starts a goroutine")
		case *ast.SelectorExpr:
			if of, ok := node.X.(*ast.Ident); ok && of.Name == "time" && slices.Contains(clock, node.Sel.Name) {
				add(node, "calls time."+node.Sel.Name)
			}
		}
		return true
	})
	return found
}

// relative removes the module from an import path; paths of other modules stay whole.
func relative(path string) string {
	return strings.TrimPrefix(path, module+"/")
}
