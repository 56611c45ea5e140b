// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// heading begins a step in a golden file.
const heading = "=== "

// File is a golden file: what is seen at each step of one scenario.
type File struct {
	path   string
	update bool
	// Patience is how long a step waits for what the file says.
	patience time.Duration
	steps    map[string]string
	seen     []string
}

// Open reads a golden file. With update it is written at the end instead. It fails the test unless the test passes all
// steps.
func Open(t *testing.T, path string, update bool, patience time.Duration) *File {
	t.Helper()
	f := &File{path: path, update: update, patience: patience, steps: map[string]string{}}
	data, err := os.ReadFile(path)
	if err != nil && !update {
		t.Fatalf("read golden file: %v; write it with -update", err)
	}
	if !update {
		for part := range strings.SplitSeq("\n"+string(data), "\n"+heading) {
			name, text, _ := strings.Cut(part, "\n")
			f.steps[name] = strings.TrimSuffix(text, "\n")
		}
		delete(f.steps, "")
	}
	t.Cleanup(func() { f.close(t) })
	return f
}

// Step waits until look returns what the file says of this step. With update it waits until look returns the same text
// for some time.
func (f *File) Step(t *testing.T, name string, look func() (string, error)) {
	t.Helper()
	if slices.Contains(f.seen, name) {
		t.Fatalf("two steps are called %q", name)
	}
	f.seen = append(f.seen, name)
	want, there := f.steps[name]
	if !there && !f.update {
		t.Fatalf("%s has no step %q", f.path, name)
	}
	var text string
	var err error
	since := time.Now()
	for end := time.Now().Add(f.patience); ; time.Sleep(100 * time.Millisecond) {
		before := text
		text, err = look()
		text = strings.TrimSpace(text)
		if err == nil && text == want && !f.update {
			return
		}
		if text != before || err != nil {
			since = time.Now()
		}
		if f.update && time.Since(since) > settled {
			break
		}
		if time.Now().After(end) {
			if f.update { // it never came to rest
				want = before
			}
			f.fail(t, name, want, text, err)
		}
	}
	if found := Strange(text); len(found) > 0 {
		t.Fatalf("%s, step %s: what are %q? Give each a placeholder\n%s", f.path, name, found, text)
	}
	f.steps[name] = text
}

// settled is how long nothing may change before a step is written.
const settled = 2 * time.Second

func (f *File) fail(t *testing.T, name, want, text string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s, step %s: %v", f.path, name, err)
	}
	t.Fatalf("%s, step %s differs (-file +now). If users should see this change, write the file with -update.\n%s",
		f.path, name, Diff(want, text))
}

// close writes the file, or fails the test that has not come to all steps.
func (f *File) close(t *testing.T) {
	if t.Failed() {
		return
	}
	if !f.update {
		for name := range f.steps {
			if !slices.Contains(f.seen, name) {
				t.Errorf("%s has step %q, the test has not", f.path, name)
			}
		}
		return
	}
	var out strings.Builder
	for _, name := range f.seen {
		fmt.Fprintf(&out, "%s%s\n%s\n", heading, name, f.steps[name])
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.path, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
