// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

import (
	"debug/elf"
	flags "flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var write = flags.Bool("write", false, "write functions.h for the version of go-dcgm in go.mod")

const functionsFile = "functions.h"

// functions.h has each function that go-dcgm calls, and no other, among them those that Kerf needs.
func TestFunctions(t *testing.T) {
	want := calledByGoDCGM(t)
	data, err := os.ReadFile(functionsFile)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(data), "FUNCTION(")
	text := head + "FUNCTION(" + strings.Join(want, ")\nFUNCTION(") + ")\n"
	switch {
	case string(data) == text:
	case *write:
		if err := os.WriteFile(functionsFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not that of this go-dcgm: run 'go test -run TestFunctions ./internal/dcgm -write'", functionsFile)
	}
	for _, remote := range []bool{false, true} {
		for _, f := range requiredFuncs(remote) {
			if !slices.Contains(want, f) {
				t.Errorf("%s is required, and go-dcgm does not call it", f)
			}
		}
	}
}

// calledByGoDCGM reads the names in go-dcgm's sources. Names that end in _t or _f are types.
func calledByGoDCGM(t *testing.T) []string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/NVIDIA/go-dcgm/pkg/dcgm").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("go-dcgm in %q has the files %q (%v)", dir, files, err)
	}
	call := regexp.MustCompile(`\bC\.(dcgm[A-Z]\w*|Dcgm[A-Z]\w*|errorString)\(`)
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllSubmatch(text, -1) {
			if name := string(m[1]); !strings.HasSuffix(name, "_t") && !strings.HasSuffix(name, "_f") {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// A program that needs a function of DCGM from the dynamic linker does not start where LD_BIND_NOW is set.
func TestProgramNeedsNothingOfDCGM(t *testing.T) {
	exe, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	needed, err := exe.ImportedSymbols()
	if err != nil || len(needed) == 0 {
		t.Fatalf("%d symbols, %v", len(needed), err)
	}
	for _, s := range needed {
		if strings.HasPrefix(strings.ToLower(s.Name), "dcgm") || s.Name == "errorString" {
			t.Errorf("the program needs %s", s.Name)
		}
	}
}
