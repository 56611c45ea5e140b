// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testsByPackage are the names of all tests of the repository, by the folder that they are in.
func testsByPackage(t *testing.T) map[string][]string {
	t.Helper()
	root := filepath.Join("..", "..")
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
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
		for _, f := range declared.FindAllStringSubmatch(string(text), -1) {
			all[dir] = append(all[dir], f[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// misnamed says of each test that a text names what is wrong with it, and how many it names. A test is named with its folder:
// tests of one name are in several.
func misnamed(text string, there map[string][]string) (wrong []string, n int) {
	for _, name := range regexp.MustCompile(`[\w./-]*\bTest[A-Z]\w*`).FindAllString(text, -1) {
		n++
		dir, test, named := cutLast(name, ".")
		switch {
		case !named:
			wrong = append(wrong, fmt.Sprintf("%s is named without its folder: write it as test/machine.TestX", name))
		case !slices.Contains(there[dir], test):
			wrong = append(wrong, fmt.Sprintf("%s has no such test: it is in %q", dir, homes(test, there)))
		}
	}
	return wrong, n
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+len(sep):], true
}

func homes(test string, there map[string][]string) (dirs []string) {
	for dir, names := range there {
		if slices.Contains(names, test) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs
}

// A test that the page names is there, in the package that the page names; so is every package that the promises are shown by.
func TestTextNamesTests(t *testing.T) {
	there := testsByPackage(t)
	wrong, n := misnamed(introduction+limits, there)
	for _, w := range wrong {
		t.Error("the page of the matrix: " + w)
	}
	if n < 20 {
		t.Errorf("%d names of tests found, want at least 20", n)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "promises.md"))
	if err != nil {
		t.Fatal(err)
	}
	n = 0
	for _, shown := range regexp.MustCompile(`(?s)Shown by .*?(?:\.\n|\. [A-Z]|$)`).FindAllString(string(text), -1) {
		for _, dir := range regexp.MustCompile("`([a-z][\\w-]*/[\\w./-]+)`").FindAllStringSubmatch(shown, -1) {
			if n++; len(there[dir[1]]) == 0 {
				t.Errorf("promises.md says that something is shown by %s, which has no tests", dir[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("%d packages found in promises.md, want at least 20", n)
	}
}

func TestMisnamed(t *testing.T) {
	there := map[string][]string{"a/b": {"TestOne"}, "c": {"TestOne", "TestTwo"}}
	for text, want := range map[string]int{
		"`a/b.TestOne`, `c.TestTwo`": 0,
		"`a/b.TestTwo`":              1,
		"`TestTwo`":                  1,
		"`d.TestOne` and TestOne":    2,
		"`c.TestNever`":              1,
	} {
		if got, _ := misnamed(text, there); len(got) != want {
			t.Errorf("%s: %q, want %d", text, got, want)
		}
	}
}
