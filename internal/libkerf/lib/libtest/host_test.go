// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
)

// A program that counts has the same umask, threads, handlers and blocked signals as one that does not, and its output
// is its own.
func TestLeavesTheProgramAlone(t *testing.T) {
	b := start(t, "a30x2", "r580").cap(t, gib)
	steps := []string{"state", "gpu:0", "take:linear:2097152", "state", "take:async:2097152", "clear", "state"}
	with := b.check(t, steps...)
	without := b.program(t, []string{"LD_PRELOAD="}, "check/kerfcheck", steps...)
	if with != without {
		t.Errorf("with the library %s, without %s", with, without)
	}
}

func TestOtherPrograms(t *testing.T) {
	b := box{node: node{dir: t.TempDir()}, dir: built} // there is no region next to this library, and no driver
	for _, test := range [][]string{
		{"/bin/true"}, {"/bin/sh", "-c", "echo a; exit 3"},
		{"/bin/sh", "-c", "echo $$ | wc -l; (echo b) | cat; exec /bin/echo c"},
		{"/bin/sh", "-c", "umask; ulimit -c; cat /proc/sys/kernel/ostype"},
		{"python3", "-c",
			"import ctypes; print(ctypes.CDLL(None).getppid() > 0, hasattr(ctypes.CDLL(None), 'cuMemAlloc_v2'))"},
	} {
		path, err := exec.LookPath(test[0])
		if err != nil {
			continue
		}
		code, out, errout := b.ended(t, nil, path, test[1:]...)
		wantCode, wantOut, wantErr := b.ended(t, []string{"LD_PRELOAD="}, path, test[1:]...)
		if code != wantCode || out != wantOut || errout != wantErr {
			t.Errorf("%q: %d %q %q, want %d %q %q", test, code, out, errout, wantCode, wantOut, wantErr)
		}
	}
}

// Without a region, or with one that is none, there is no memory, one line says so, and the program goes on.
func TestWithoutARegion(t *testing.T) {
	n := start(t, "a30x2", "r580")
	for name, spoil := range map[string]func(dir string) error{
		"no limits": func(dir string) error { return os.Remove(filepath.Join(dir, libkerf.LimitsFile)) },
		"no usage":  func(dir string) error { return os.Remove(filepath.Join(dir, libkerf.UsageFileName)) },
		"short":     func(dir string) error { return os.Truncate(filepath.Join(dir, libkerf.UsageFileName), 100) },
		"another magic": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, libkerf.LimitsFile), make([]byte, 4096), 0o600)
		},
	} {
		b := n.cap(t, gib)
		dir := t.TempDir() // the files of a region that is mapped are left alone
		for _, f := range []string{libkerf.LimitsFile, libkerf.UsageFileName, libkerf.LibraryFile} {
			data, err := os.ReadFile(filepath.Join(b.dir, f))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, f), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := libkerf.MakePreload(dir); err != nil {
			t.Fatal(err)
		}
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
		b.dir = dir
		code, out, errout := b.ended(t, nil, "check/kerfcheck", "gpu:0", "take:linear:2097152", "take:async:2097152",
			"info", "take:managed:4096")
		if want := "2\n2\n0 0 0 0\n2"; code != 0 || out != want || strings.Count(errout, "\n") != 1 ||
			!strings.HasPrefix(errout, "libkerf: ") {
			t.Errorf("%s: %d %q %q", name, code, out, errout)
		}
	}
}

// Limits are found by UUID, whatever a program calls its GPUs.
func TestVisibleDevices(t *testing.T) {
	n := start(t, "l40sx4", "r550")
	b := n.cap(t, 1*gib, 2*gib, 3*gib)
	size := func(f sharing.Bytes) string { return fmt.Sprintf("0 %d %d %d", f, f, f) }
	for _, test := range []struct {
		visible, gpu string
		want         string
	}{
		{"0,1,2,3", "1", size(2 * gib)}, {"2,0", "0", size(3 * gib)}, {"2,0", "1", size(gib)},
		{"1", "0", size(2 * gib)},
		{n.gpu(2).String() + "," + n.gpu(1).String(), "0", size(3 * gib)}, {n.gpu(1).String(), "0", size(2 * gib)},
		{"3", "0", size(0)}, {"3,1", "1", size(2 * gib)},
	} {
		got := b.program(t, []string{"CUDA_VISIBLE_DEVICES=" + test.visible}, "check/kerfcheck", "gpu:"+test.gpu,
			"info", "fill:linear:1073741824")
		var limit int
		if _, err := fmt.Sscanf(test.want, "0 %d", &limit); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%s|%d", test.want, limit>>30); got != want {
			t.Errorf("GPU %s of %s: %s, want %s", test.gpu, test.visible, got, want)
		}
	}
}

func TestNVML(t *testing.T) {
	n := start(t, "l40sx4", "r580")
	b := n.cap(t, gib, 2*gib)
	show := func(total, used sharing.Bytes) string {
		return fmt.Sprintf("0 %d %d %d %d %d %d", total, total-used, used, total, total-used, used)
	}
	got := b.program(t, []string{"CUDA_VISIBLE_DEVICES=1"}, "check/kerfcheck", "gpu:0", "take:linear:1073741824",
		"nvml:"+n.gpu(0).String(), "nvml:"+n.gpu(1).String(), "nvml:"+n.gpu(2).String())
	if want := "0|" + show(gib, 0) + "|" + show(2*gib, gib) + "|" + show(0, 0); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Who finds all slots taken by the living gets no memory.
func TestMoreProcessesThanSlots(t *testing.T) {
	b := start(t, "a30x2", "r580").cap(t, gib)
	path := filepath.Join(b.dir, libkerf.UsageFileName)
	usage, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const firstSlot, slotSize = 64 + libkerf.MaxDevices*128, 320
	for i := range libkerf.MaxProcesses {
		usage[firstSlot+i*slotSize] = 1 // pid 1, which lives
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(usage, 0); err != nil {
		t.Fatal(err)
	}
	code, out, errout := b.ended(t, nil, "check/kerfcheck", "gpu:0", "take:linear:2097152")
	if code != 0 || out != oom || strings.Count(errout, "\n") != 1 {
		t.Errorf("%d %q %q", code, out, errout)
	}
}
