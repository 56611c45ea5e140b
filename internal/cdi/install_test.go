// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func allNames() []string {
	return []string{"kerf.dev-guard.json", "kerf.dev-ask.json", "kerf.dev-numa.json", "kerf.dev-near.json"}
}

// inodes distinguish a file that was written again from one that was not.
func inodes(t *testing.T, dir string) map[string]uint64 {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]uint64{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = info.Sys().(*syscall.Stat_t).Ino
	}
	return out
}

func TestInstallWritesOnlyWhatDiffers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc", "cdi")
	files, written, err := InstallStatic(dir, small, testHook)
	if err != nil || !slices.Equal(written, allNames()) {
		t.Fatalf("wrote %q (%v)", written, err)
	}
	if err := Verify(dir, files); err != nil {
		t.Error(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, allNames()[0])} {
		info, err := os.Stat(path)
		if want := map[bool]fs.FileMode{true: fs.ModeDir | 0o755, false: 0o644}[info.IsDir()]; err != nil ||
			info.Mode() != want {
			t.Errorf("%q has mode %s, want %s", path, info.Mode(), want)
		}
	}
	before := inodes(t, dir)
	if _, written, err = InstallStatic(dir, small, testHook); err != nil || len(written) > 0 {
		t.Errorf("a second time: wrote %q (%v), want nothing", written, err)
	}
	if diff := cmp.Diff(before, inodes(t, dir)); diff != "" {
		t.Errorf("files were replaced: %s", diff)
	}
	newer := testHook
	newer.Path = "/opt/kerf/v0.3.0/kerf-hook"
	if _, written, err = InstallStatic(dir, small, newer); err != nil || !slices.Equal(written, allNames()[:2]) {
		t.Errorf("another hook: wrote %q (%v), want guard and ask", written, err)
	}
}

// TestInstallNeverTakesAnAmountAway: a running pod's names must resolve when its container starts again.
func TestInstallNeverTakesAnAmountAway(t *testing.T) {
	dir := t.TempDir()
	big := Maxima{MemoryGiB: 8, Percent: 4, GPUs: 4, NUMANodes: 2}
	if _, _, err := InstallStatic(dir, big, testHook); err != nil {
		t.Fatal(err)
	}
	// A GPU is gone, there is another one with more memory; then the driver is not even loaded.
	for _, m := range []Maxima{{MemoryGiB: 10, Percent: 3, GPUs: 3, NUMANodes: 1}, {}} {
		files, _, err := InstallStatic(dir, m, testHook)
		if err != nil {
			t.Fatal(err)
		}
		want := mustStatic(t, Maxima{MemoryGiB: 10, Percent: 4, GPUs: 4, NUMANodes: 2})
		if diff := cmp.Diff(want, files); diff != "" {
			t.Errorf("after %+v: %s", m, diff)
		}
	}
}

func TestRecorded(t *testing.T) {
	device := func(names ...string) string {
		out := `{"cdiVersion":"0.3.0","kind":"kerf.dev/ask","devices":[`
		for i, n := range names {
			if i > 0 {
				out += ","
			}
			out += `{"name":"` + n + `","containerEdits":{"env":["A=b"]}}`
		}
		return out + "]}"
	}
	tests := map[string]struct {
		data string
		want Maxima
	}{
		"amounts": {device("gpu-memory-gib:7", "gpu:2", "gpu-memory-gib:3", "gpu-percent:50"),
			Maxima{MemoryGiB: 7, Percent: 50, GPUs: 2}},
		"instances": {device("mig-1g.10gb:1", "mig-1g.10gb:2", "mig-7g.80gb:1"),
			Maxima{MIG: map[string]int{"mig-1g.10gb": 2, "mig-7g.80gb": 1}}},
		"odd names": {device("gpu-memory-gib:07", "gpu-memory-gib:-1", "gpu-memory-gib", "gpu:x", "mig:3", "gpu:1"),
			Maxima{GPUs: 1}},
		"absurd amount": {device("gpu-memory-gib:2000000000", "gpu:1"), Maxima{GPUs: 1}},
		"unknown field": {strings.Replace(device("gpu:1"), "{", `{"x":1,`, 1), Maxima{}},
		"half":          {device("gpu:1")[:30], Maxima{}},
		"empty":         {"", Maxima{}},
		"other kind":    {strings.Replace(device("gpu:1"), "kerf.dev/ask", "kerf.dev/near", 1), Maxima{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, dir, "kerf.dev-ask.json", tc.data)
			got, err := Recorded(dir)
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%+v (%v), want %+v", got, err, tc.want)
			}
			// Whatever stood there, it is put right.
			files, _, err := InstallStatic(dir, small, testHook)
			if err != nil || Verify(dir, files) != nil {
				t.Errorf("not put right: %v", err)
			}
		})
	}
	if got, err := Recorded(t.TempDir()); err != nil || !reflect.DeepEqual(got, Maxima{}) {
		t.Errorf("nothing there: %+v (%v)", got, err)
	}
}

func TestVerifySeesEveryChangeAndInstallRepairsIt(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(path string) error
		want   error
	}{
		"removed": {os.Remove, sharing.ErrNotFound},
		"edited, same size": {func(p string) error {
			data, err := os.ReadFile(p)
			return errors.Join(err, os.WriteFile(p, []byte(strings.Replace(string(data), "/opt/kerf", "/tmp/kerf", 1)),
				0o644))
		}, sharing.ErrStale},
		"emptied":    {func(p string) error { return os.Truncate(p, 0) }, sharing.ErrStale},
		"writable":   {func(p string) error { return os.Chmod(p, 0o666) }, sharing.ErrStale},
		"unreadable": {func(p string) error { return os.Chmod(p, 0o600) }, sharing.ErrStale},
		"a link": {func(p string) error {
			return errors.Join(os.Rename(p, p+".real"), os.Symlink(p+".real", p))
		}, sharing.ErrStale},
		"another's": {func(p string) error {
			if os.Geteuid() != 0 {
				return os.Chmod(p, 0o664) // only root gives files away
			}
			return os.Chown(p, 1234, 1234)
		}, sharing.ErrStale},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files, _, err := InstallStatic(dir, small, testHook)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, files[0].Name)
			if err := tc.change(path); err != nil {
				t.Fatal(err)
			}
			if err := Verify(dir, files); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v, want %v and the file", err, tc.want)
			}
			written, err := Install(dir, files)
			if err != nil || !slices.Equal(written, []string{files[0].Name}) || Verify(dir, files) != nil {
				t.Errorf("install wrote %q (%v), want that file to be right again", written, err)
			}
		})
	}
}

func TestInstallCleansUpAfterKilledWriters(t *testing.T) {
	dir := t.TempDir()
	left := writeFile(t, dir, ".kerf-tmp-kerf.dev-ask.json-123", "{")
	other := writeFile(t, dir, "vendor.json.tmp", "{")
	if _, _, err := InstallStatic(dir, small, testHook); err != nil {
		t.Fatal(err)
	}
	_, err := os.Stat(left)
	if _, err2 := os.Stat(other); !errors.Is(err, fs.ErrNotExist) || err2 != nil {
		t.Errorf("leftover: %v, file of another: %v", err, err2)
	}
}

func TestInstallRefusesFoldersOfOthers(t *testing.T) {
	for name, mode := range map[string]fs.FileMode{"group": 0o775, "all": 0o777, "all, sticky": 0o777 | fs.ModeSticky} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if written, err := Install(dir, mustStatic(t, small)); !errors.Is(err, sharing.ErrDenied) || len(written) > 0 ||
			!strings.Contains(err.Error(), dir) {
			t.Errorf("%s: wrote %q (%v), want a refusal", name, written, err)
		}
	}
	above := t.TempDir()
	if err := os.Chmod(above, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(filepath.Join(above, "cdi"), mustStatic(t, small)); !errors.Is(err, sharing.ErrDenied) {
		t.Errorf("folder above: %v, want a refusal", err)
	}
	if _, err := Install("cdi", mustStatic(t, small)); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("relative: %v, want a refusal", err)
	}
	if _, err := Install(t.TempDir(), []File{{Name: "../x.json"}}); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("name with a path: %v, want a refusal", err)
	}
}

// TestFullDisk: the old spec stays, nothing half stands under a final name.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("kerf-test", dir, "tmpfs", 0, "size=64k,mode=0755"); err != nil {
		t.Skipf("not supported here: mount tmpfs: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	old, _, err := InstallStatic(dir, small, testHook)
	if err != nil {
		t.Fatal(err)
	}
	big := mustStatic(t, Maxima{MemoryGiB: 640, Percent: 800, GPUs: 8, NUMANodes: 2})
	written, err := Install(dir, big)
	if !errors.Is(err, sharing.ErrUnavailable) || len(written) > 0 {
		t.Errorf("wrote %q (%v), want an error", written, err)
	}
	if err := Verify(dir, old); err != nil {
		t.Errorf("the old specs: %v", err)
	}
	if n := len(inodes(t, dir)); n != len(old) {
		t.Errorf("%d files, want %d", n, len(old))
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(dir, big); !errors.Is(err, sharing.ErrDenied) {
		t.Errorf("read-only: %v, want %v", err, sharing.ErrDenied)
	}
}

func FuzzRecorded(f *testing.F) {
	files, err := Static(small, testHook)
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		f.Add(file.Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range []string{sharing.CDIRequest, sharing.CDINUMA, sharing.EarlierCDINUMA} {
			m := recorded(kind, data)
			if err := m.check(); err != nil {
				t.Errorf("%+v: %v", m, err)
			}
		}
		declares(data)
		_, _ = editsFor(data, sharing.CDIGPU, []string{string(gpuA)})
	})
}
