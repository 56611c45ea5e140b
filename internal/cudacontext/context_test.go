// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cudacontext

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// library builds a library of this source.
func library(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	file, out := filepath.Join(dir, "cuda.c"), filepath.Join(dir, "libcuda.so.1")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-o", out,
		file).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	return out
}

const (
	initOK   = "int cuInit(unsigned f) { return f; }\n"
	deviceOK = "int cuDeviceGet(int *d, int n) { *d = 5 + n; return 0; }\n"
	retainOK = "int cuDevicePrimaryCtxRetain(void **c, int d) { *c = c; return d == 5 ? 0 : 101; }\n"
)

func TestMake(t *testing.T) {
	for name, c := range map[string]struct {
		source, says string
		err          error
	}{
		"a context": {initOK + deviceOK + retainOK, "", nil},
		"no GPU": {"int cuInit(unsigned f) { return 100; }\n" + deviceOK + retainOK, "cuInit: CUDA error 100",
			sharing.ErrUnavailable},
		"no first GPU": {initOK + "int cuDeviceGet(int *d, int n) { return 101; }\n" + retainOK,
			"cuDeviceGet: CUDA error 101", sharing.ErrUnavailable},
		"no memory": {initOK + deviceOK + "int cuDevicePrimaryCtxRetain(void **c, int d) { return 2; }\n",
			"cuDevicePrimaryCtxRetain: CUDA error 2", sharing.ErrUnavailable},
		"another library": {initOK + deviceOK, "no cuDevicePrimaryCtxRetain", sharing.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			err := Make([]string{filepath.Join(t.TempDir(), "none.so"), library(t, c.source)})
			if !errors.Is(err, c.err) || c.err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

func TestMakeWithoutALibrary(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, paths := range [][]string{{"/nowhere/libcuda.so.1"}, {"/nowhere/libcuda.so.1", text}, nil} {
		if err := Make(paths); !errors.Is(err, sharing.ErrNotFound) {
			t.Errorf("%q: %v", paths, err)
		}
	}
}
