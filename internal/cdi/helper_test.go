// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	gpuA sharing.GPUID = "GPU-00000000-0000-4000-8000-00000000000a"
	gpuB sharing.GPUID = "GPU-00000000-0000-4000-8000-00000000000b"
	gpuC sharing.GPUID = "GPU-00000000-0000-4000-8000-00000000000c"
)

// node are the GPUs that the sources in testdata are of.
var node = []sharing.GPU{{UUID: gpuB, Index: 1, Minor: 3}, {UUID: gpuA, Index: 0, Minor: 0}}

var (
	testHook = Hook{Path: "/opt/kerf/v0.2.0/kerf-hook", Socket: "/run/kerf/hook.sock"}
	small    = Maxima{MemoryGiB: 3, Percent: 2, GPUs: 2, NUMANodes: 2}
)

var update = flag.Bool("update", false, "rewrite testdata; commit the difference only if you understand it")

// golden compares byte for byte.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs: %s", path, diff)
	}
}

func mustStatic(t *testing.T, m Maxima) []File {
	t.Helper()
	files, err := Static(m, testHook)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// read decodes a file of ours strictly, as JSON and as the library does.
func read(t *testing.T, f File) *specs.Spec {
	t.Helper()
	var s specs.Spec
	if err := json.Unmarshal(f.Data, &s); err != nil {
		t.Fatalf("%s is no JSON: %v", f.Name, err)
	}
	again, err := cdilib.ParseSpec(f.Data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&s, again); diff != "" {
		t.Errorf("%s reads differently as YAML: %s", f.Name, diff)
	}
	return &s
}

func writeFile(t *testing.T, dir, name, data string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func source(t *testing.T, name string) []SourceSpec {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFile(t, dir, name, string(data))
	from, err := Source([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	return from
}

// InstallStatic makes guard, ask and near for amounts up to m in dir, and for the amounts that stand there
// already: running containers may have been admitted with them. It returns what stands there now, for
// Verify, and the names of the files that it had to write. Errors are as of Static and Install.
func InstallStatic(dir string, m Maxima, h Hook) (now []File, written []string, err error) {
	old, err := Recorded(dir)
	if err != nil {
		return nil, nil, err
	}
	now, err = Static(m.Union(old), h)
	if err != nil {
		return nil, nil, err
	}
	written, err = Install(dir, now)
	return now, written, err
}

// Verify looks whether dir still holds the files as Install left them. The error names every file that is
// not, and wraps sharing.ErrNotFound (gone) or sharing.ErrStale (other content, mode or owner); Install puts
// it right.
func Verify(dir string, files []File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, verify(filepath.Join(dir, f.Name), f.Data))
	}
	return errors.Join(errs...)
}
