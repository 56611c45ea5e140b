// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

func newKept(t *testing.T) (k *Manager, own, run string) {
	t.Helper()
	own, run = t.TempDir(), t.TempDir()
	data, err := os.ReadFile("testdata/simulated.json")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, run, "nvidia.json", string(data))
	return NewManager(own, []string{own, run}, testHook), own, run
}

func TestKeep(t *testing.T) {
	k, own, run := newKept(t)
	keep := func(what string, m Maxima, want ...string) {
		t.Helper()
		for i := range 3 { // once to write, once to find it right, once to look only
			got, err := k.Reconcile(m, node)
			if i > 0 {
				want = nil
			}
			if err != nil || !slices.Equal(got.Written, want) || len(got.Left) > 0 {
				t.Errorf("%s, time %d: wrote %q, left %q (%v), want %q", what, i, got.Written, got.Left, err, want)
			}
		}
	}
	all := append(allNames(), "kerf.dev-gpu.json")
	keep("first", small, all...)
	static := mustStatic(t, small)
	keep("fewer", Maxima{GPUs: 1})
	if err := os.Remove(filepath.Join(own, "kerf.dev-ask.json")); err != nil {
		t.Fatal(err)
	}
	// The file with the larger amounts is gone, and they come back.
	keep("removed", Maxima{GPUs: 1}, "kerf.dev-ask.json")
	if err := Verify(own, static); err != nil {
		t.Error(err)
	}
	path := filepath.Join(own, "kerf.dev-guard.json")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// An edit that keeps size and modification time.
	if err := errors.Join(os.WriteFile(path, []byte(strings.Replace(string(data), "/opt", "/tmp", 1)), 0o644),
		os.Chtimes(path, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
	keep("edited", Maxima{GPUs: 1}, "kerf.dev-guard.json")
	keep("more", Maxima{MemoryGiB: 5}, "kerf.dev-ask.json")
	writeFile(t, run, "nvidia.json", strings.ReplaceAll(string(mustRead(t, "testdata/simulated.json")), "/run/gpusim",
		"/run/other"))
	keep("new source", Maxima{}, "kerf.dev-gpu.json")
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestKeepWithTrouble(t *testing.T) {
	k, own, run := newKept(t)
	foreign := writeFile(t, run, "x.json", spec("kerf.dev/guard", "armed"))
	for range 2 {
		if got, err := k.Reconcile(small, node); !errors.Is(err, sharing.ErrConflict) || len(got.Written) > 0 ||
			!strings.Contains(err.Error(), foreign) {
			t.Errorf("conflict: wrote %q (%v)", got.Written, err)
		}
	}
	if err := errors.Join(os.Remove(foreign), os.Rename(filepath.Join(run, "nvidia.json"),
		filepath.Join(run, "nvidia.away"))); err != nil {
		t.Fatal(err)
	}
	// Without NVIDIA's spec the guard is in place all the same.
	if got, err := k.Reconcile(small, node); !errors.Is(err, sharing.ErrNotFound) || !slices.Equal(got.Written,
		allNames()) {
		t.Errorf("no source: wrote %q (%v)", got.Written, err)
	}
	if _, err := k.Reconcile(small, node); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("no source, again: %v", err)
	}
	if err := os.Rename(filepath.Join(run, "nvidia.away"), filepath.Join(run, "nvidia.json")); err != nil {
		t.Fatal(err)
	}
	more := append(slices.Clone(node), sharing.GPU{UUID: gpuC, Index: 2, Minor: 2})
	for range 3 {
		got, err := k.Reconcile(small, more)
		if err != nil || len(got.Left) != 1 || !strings.Contains(got.Left[gpuC], "nvidia-ctk") {
			t.Errorf("left %q (%v), want the GPU that the source does not know", got.Left, err)
		}
	}
	// A conflict that comes later is seen.
	writeFile(t, own, "y.yaml", spec("kerf.dev/gpu", string(gpuA)))
	if _, err := k.Reconcile(small, more); !errors.Is(err, sharing.ErrConflict) {
		t.Errorf("later conflict: %v", err)
	}
}

func BenchmarkKeepNothingChanged(b *testing.B) {
	own := b.TempDir()
	if err := os.WriteFile(filepath.Join(own, "nvidia.json"), []byte(spec("nvidia.com/gpu", "0")), 0o644); err != nil {
		b.Fatal(err)
	}
	k := NewManager(own, []string{own}, testHook)
	m := Maxima{MemoryGiB: 1440, Percent: 800, GPUs: 8, NUMANodes: 2}
	for range 2 {
		if _, err := k.Reconcile(m, nil); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := k.Reconcile(m, nil); err != nil {
			b.Fatal(err)
		}
	}
}
