// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package layers_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// platforms are the systems of kubectl-kerf, besides the one that runs the tests.
var platforms = []string{"darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64", "linux/arm64"}

// linuxOnly are packages that kubectl-kerf must not import.
var linuxOnly = []string{"internal/cgroup", "internal/containerd", "internal/mountns", "internal/mounttable",
	"internal/nvml", "internal/mps", "internal/libkerf", "internal/process", "internal/cli/run",
	"internal/cli/doctor/machine", "sharing/doctor/nodefiles"}

// TestPlatforms type-checks kubectl-kerf for each of its platforms. It compiles nothing, and it does not check the
// functions of other modules.
func TestPlatforms(t *testing.T) {
	read := &sources{set: token.NewFileSet()}
	for _, platform := range platforms {
		t.Run(platform, func(t *testing.T) {
			t.Parallel()
			if err := typeCheck(t, read, "./cmd/kubectl-kerf", platform); err != nil {
				t.Error(err)
			}
		})
	}
}

// The check finds what needs Linux: cmd/kerf does.
func TestPlatformsFindsLinux(t *testing.T) {
	err := typeCheck(t, &sources{set: token.NewFileSet()}, "./cmd/kerf", "darwin/arm64")
	if err == nil || !strings.Contains(err.Error(), "needs Linux") {
		t.Errorf("cmd/kerf for darwin: %v", err)
	}
}

// dependency is the part of go list's answer for a package that typeCheck uses.
type dependency struct {
	Dir, ImportPath string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Main bool }
}

// typeCheck checks a program and all that it imports, in the order of imports.
func typeCheck(t *testing.T, read *sources, program, platform string) error {
	t.Helper()
	system, arch, _ := strings.Cut(platform, "/")
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps",
		"-json=Dir,ImportPath,GoFiles,ImportMap,Module", program)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("list imports of %s: %w: %s", program, err, stderr.String())
	}
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var d dependency
		if err := decoder.Decode(&d); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read imports of %s: %w", program, err)
		}
		if slices.Contains(linuxOnly, relative(d.ImportPath)) {
			return fmt.Errorf("%s imports %s: %s needs Linux", program, d.ImportPath, relative(d.ImportPath))
		}
		if d.ImportPath == "unsafe" {
			continue
		}
		if checked[d.ImportPath], err = d.check(read, checked, arch); err != nil {
			return err
		}
	}
}

// sources are files that were parsed. Most are the same on all platforms.
type sources struct {
	set   *token.FileSet
	files sync.Map // of *source by path
}

type source struct {
	once sync.Once
	file *ast.File
	err  error
}

// parse returns a file, without the bodies of its functions unless they are wanted.
func (s *sources) parse(path string, bodies bool) (*ast.File, error) {
	kept, _ := s.files.LoadOrStore(path, &source{})
	f := kept.(*source)
	f.once.Do(func() {
		f.file, f.err = parser.ParseFile(s.set, path, nil, parser.SkipObjectResolution)
		if f.err != nil || bodies {
			return
		}
		for _, d := range f.file.Decls {
			if function, ok := d.(*ast.FuncDecl); ok && function.Body != nil {
				function.Body.List = nil
			}
		}
	})
	return f.file, f.err
}

// check type-checks one package whose imports are in checked.
func (d dependency) check(read *sources, checked map[string]*types.Package, arch string) (*types.Package, error) {
	ours := d.Module != nil && d.Module.Main
	var parsed []*ast.File
	for _, name := range d.GoFiles {
		file, err := read.parse(filepath.Join(d.Dir, name), ours)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", d.ImportPath, err)
		}
		parsed = append(parsed, file)
	}
	config := types.Config{
		IgnoreFuncBodies: !ours,
		Sizes:            types.SizesFor("gc", arch),
		Importer: importer(func(path string) (*types.Package, error) {
			if mapped, ok := d.ImportMap[path]; ok {
				path = mapped
			}
			if p := checked[path]; p != nil {
				return p, nil
			}
			return nil, fmt.Errorf("import %q: not listed", path)
		}),
	}
	p, err := config.Check(d.ImportPath, read.set, parsed, nil)
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", d.ImportPath, err)
	}
	return p, nil
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
