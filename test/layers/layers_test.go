// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package layers_test checks the module's layers. It checks which package may import which, which imports only one
// adapter may have, and which packages are pure. Package comments and CONTRIBUTING.md must say what each folder is for.
//
// It sees imports and, in pure packages, goroutines and clock readings. It does not see what a package does
// through the interfaces that it is given, and it does not look at the imports of tests.
package layers_test

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func TestLayers(t *testing.T) {
	pkgs, err := load(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	// The tree must have been found, or the test would hold whatever happens.
	if !slices.ContainsFunc(pkgs, func(p pkg) bool { return p.path == "sharing" }) {
		t.Fatalf("%d packages found below %q and package sharing is not among them", len(pkgs), root)
	}
	for _, wrong := range check(pkgs) {
		t.Error(wrong)
	}
}

// Two rules for one path would leave it to chance which holds; a rule without its sentence explains nothing.
func TestRulesAreSound(t *testing.T) {
	seen := map[string]bool{}
	for _, l := range layers {
		if seen[l.pattern] || l.why == "" {
			t.Errorf("layer %q: given twice, or without its sentence", l.pattern)
		}
		seen[l.pattern] = true
	}
	seen = map[string]bool{}
	for _, d := range adapters {
		if seen[d.path] || d.why == "" {
			t.Errorf("adapter %q: given twice, or without its sentence", d.path)
		}
		seen[d.path] = true
	}
}

// folderLine is how CONTRIBUTING.md says what a folder is for: a list item with the folder and a sentence.
var folderLine = regexp.MustCompile("^- `([A-Za-z0-9_-]+)/` .*[a-z].*\\.$")

func TestContributingNamesEveryFolder(t *testing.T) {
	file, err := os.Open(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var named []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if match := folderLine.FindStringSubmatch(lines.Text()); match != nil {
			named = append(named, match[1])
		}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, entry := range entries {
		if name := entry.Name(); entry.IsDir() && !strings.HasPrefix(name, ".") && name != "bin" {
			folders = append(folders, name)
		}
	}
	for _, folder := range folders {
		if !slices.Contains(named, folder) {
			t.Errorf("CONTRIBUTING.md has no line \"- `%s/` ... .\"", folder)
		}
	}
	for _, name := range named {
		if !slices.Contains(folders, name) {
			t.Errorf("CONTRIBUTING.md describes %q, and there is no such folder", name)
		}
	}
}
