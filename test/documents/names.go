// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	declaredTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	namedTest    = regexp.MustCompile(`[\w./-]*\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`)
)

// Tests returns the names of all tests, fuzz tests and benchmarks below root. The key is their folder, relative to
// root.
func Tests(root string) (map[string][]string, error) {
	all := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == ".cache" || d.Name() == "bin"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		for _, f := range declaredTest.FindAllStringSubmatch(string(text), -1) {
			all[dir] = append(all[dir], f[1])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read tests: %w", err)
	}
	return all, nil
}

// Misnamed returns one sentence for each name of a test in text that is wrong, and the number of names. A correct name
// has its folder, as in test/machine.TestX, since several folders can have a test of one name.
func Misnamed(text string, tests map[string][]string) (wrong []string, n int) {
	for _, name := range namedTest.FindAllString(text, -1) {
		n++
		i := strings.LastIndex(name, ".")
		switch {
		case i < 0:
			wrong = append(wrong, fmt.Sprintf("%s is named without its folder: write it as test/machine.TestX", name))
		case !slices.Contains(tests[name[:i]], name[i+1:]):
			wrong = append(wrong, fmt.Sprintf("%s has no such test: it is in %q", name, homes(name[i+1:], tests)))
		}
	}
	return wrong, n
}

func homes(test string, tests map[string][]string) (dirs []string) {
	for dir, names := range tests {
		if slices.Contains(names, test) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs
}
