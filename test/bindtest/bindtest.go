// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package bindtest has the tests of packages that fill the functions of an NVIDIA library in themselves: internal/nvml
// and internal/dcgm. Each has a functions.h with the functions that NVIDIA's Go module calls.
package bindtest

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const file = "functions.h"

// Functions checks that functions.h has each function that the Go package module calls, and no other. The first group
// of call is a function's name, and names that isType reports are types. With write, it writes the file instead. It
// returns the names.
func Functions(t *testing.T, module string, call *regexp.Regexp, isType func(name string) bool, write bool) []string {
	t.Helper()
	names := called(t, module, call, isType)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(data), "FUNCTION(")
	text := head + "FUNCTION(" + strings.Join(names, ")\nFUNCTION(") + ")\n"
	switch {
	case string(data) == text:
	case write:
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not that of this version of %s: run 'go test -run TestFunctions . -write' in this folder", file,
			module)
	}
	return names
}

// called reads the names in the sources of a package.
func called(t *testing.T, module string, call *regexp.Regexp, isType func(name string) bool) []string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s in %q has the files %q (%v)", module, dir, files, err)
	}
	var names []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllSubmatch(text, -1) {
			if name := string(m[1]); !isType(name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// NeedsNothing checks that the test program needs no function that is reports from the dynamic linker. Such a program
// does not start if LD_BIND_NOW is set.
func NeedsNothing(t *testing.T, is func(name string) bool) {
	t.Helper()
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
		if is(s.Name) {
			t.Errorf("the program needs %s", s.Name)
		}
	}
}
