// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

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

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

var write = flags.Bool("write", false, "write functions.h for the version of go-nvml in go.mod")

const functionsFile = "functions.h"

// functions.h has each function that go-nvml calls, and no other.
func TestFunctions(t *testing.T) {
	want := calledByGoNVML(t)
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
		t.Errorf("%s is not that of this go-nvml: run 'go test -run TestFunctions ./internal/nvml -write'", functionsFile)
	}
}

// calledByGoNVML reads the names in go-nvml's sources.
func calledByGoNVML(t *testing.T) []string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml/pkg/nvml").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("go-nvml in %q has the files %q (%v)", dir, files, err)
	}
	call := regexp.MustCompile(`\bC\.(nvml[A-Z]\w*)\(`)
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// A program that needs a function of NVML from the dynamic linker does not start where LD_BIND_NOW is set.
func TestProgramNeedsNothingOfNVML(t *testing.T) {
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
		if strings.HasPrefix(s.Name, "nvml") {
			t.Errorf("the program needs %s", s.Name)
		}
	}
}

// Without a library, and where the library lacks a function, a call is an error and not the end of the process.
func TestCallsWithoutALibrary(t *testing.T) {
	if boundLibrary() != "" {
		t.Skip("another test has bound a library")
	}
	if got := nvml.Shutdown(); got != nvml.ERROR_FUNCTION_NOT_FOUND && got != nvml.ERROR_UNINITIALIZED {
		t.Errorf("a call without a library: %d", got)
	}
	if _, got := nvml.DeviceGetCount(); got != nvml.ERROR_FUNCTION_NOT_FOUND {
		t.Errorf("a call without a library: %d, want %d", got, nvml.ERROR_FUNCTION_NOT_FOUND)
	}
}
