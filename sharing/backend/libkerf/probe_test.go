// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
)

// library builds a shared library that exports these functions.
func library(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	var source strings.Builder
	for _, n := range names {
		source.WriteString("int " + n + "(void) { return 0; }\n")
	}
	file := filepath.Join(dir, "library.c")
	if err := os.WriteFile(file, []byte(source.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "libcuda.so.1")
	if text, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-o", out,
		file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if err := os.Chmod(out, 0o755); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestProbeLibkerf(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a library of root's needs root:", sharing.ErrDenied)
	}
	known := library(t, "cuInit", "cuMemAlloc_v2", "cuGetProcAddress_v2", "cuStreamQuery", "gpusim_of_its_own")
	absent := filepath.Join(t.TempDir(), "absent")
	open := library(t, "kerf")
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no library"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*Probe, *sharing.GPU)
		answer backend.Answer
		reason string
	}{
		"all is there": {func(*Probe, *sharing.GPU) {}, backend.Supported, ""},
		"MIG":          {func(_ *Probe, g *sharing.GPU) { g.MIG = true }, backend.NotSupported, "MIG"},
		"no library": {func(l *Probe, _ *sharing.GPU) { l.Library, l.Missing = "", "it is not there" },
			backend.NotSupported, "it is not there"},
		"library gone": {func(l *Probe, _ *sharing.GPU) { l.Library = absent }, backend.NotSupported,
			"no such file"},
		"others can write to it": {func(l *Probe, _ *sharing.GPU) { l.Library = open }, backend.NotSupported,
			"root alone"},
		"no library's content": {func(l *Probe, _ *sharing.GPU) { l.Library = text }, backend.NotSupported,
			"is no library"},
		"nowhere for regions": {func(l *Probe, _ *sharing.GPU) { l.Dir = text + "/x" }, backend.NotSupported,
			"folders of grants cannot be made"},
		"no driver": {func(l *Probe, _ *sharing.GPU) { l.Drivers = []string{absent} }, backend.NoAnswer,
			"no libcuda.so.1"},
		"a driver of text": {func(l *Probe, _ *sharing.GPU) { l.Drivers = []string{text} }, backend.NoAnswer,
			"entry points could not be read"},
		"a new way to allocate": {func(l *Probe, _ *sharing.GPU) {
			l.Drivers = []string{library(t, "cuMemAlloc_v2", "cuMemAlloc_v3", "cuMemAllocEverywhere",
				"cuMemGetInfo_v3")}
		}, backend.NotSupported, "cuMemAllocEverywhere, cuMemAlloc_v3"},
		"other new names": {func(l *Probe, _ *sharing.GPU) {
			l.Drivers = []string{library(t, "cuMemAlloc_v2", "cuMemGetInfo_v3", "cuMemFree_v3_ptsz", "cuMemPolish")}
		}, backend.Supported, "cuMemFree_v3_ptsz, cuMemGetInfo_v3, cuMemPolish"},
	} {
		t.Run(name, func(t *testing.T) {
			l, g := Probe{Library: known, Dir: filepath.Join(t.TempDir(), "client"), Drivers: []string{absent, known}},
				sharing.GPU{UUID: "GPU-1"}
			tt.change(&l, &g)
			if s := l.Of(g); s.Answer != tt.answer || !strings.Contains(s.Reason, tt.reason) || tt.reason == "" &&
				s.Reason != "" {
				t.Errorf("%s: %s", s.Answer, s.Reason)
			}
		})
	}
}
