// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

func versions(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestInstallHook(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "opt", "kerf")
	binary := writeFile(t, t.TempDir(), "kerf-hook", "first")
	path, err := InstallHook(dir, "v1", binary)
	if err != nil || path != filepath.Join(dir, "v1", "kerf-hook") {
		t.Fatalf("%q (%v)", path, err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("mode %s (%v), want 0755", info.Mode(), err)
	}
	sum, err := HookSum(binary)
	if err != nil || VerifyHook(path, sum) != nil {
		t.Errorf("not the program: %v", err)
	}
	before := inodes(t, filepath.Dir(path))
	if _, err := InstallHook(dir, "v1", binary); err != nil ||
		inodes(t, filepath.Dir(path))["kerf-hook"] != before["kerf-hook"] {
		t.Errorf("the same again was written (%v)", err)
	}
	// Another build of the same version, while the old one is open.
	old, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	writeFile(t, filepath.Dir(binary), "kerf-hook", "second")
	if _, err := InstallHook(dir, "v1", binary); err != nil {
		t.Fatal(err)
	}
	if err := VerifyHook(path, sum); !errors.Is(err, sharing.ErrStale) {
		t.Errorf("%v, want %v: the content is another", err, sharing.ErrStale)
	}
	buf := make([]byte, 16)
	if n, _ := old.Read(buf); string(buf[:n]) != "first" {
		t.Errorf("who runs the old program now reads %q", buf[:n])
	}
	// A program that lost its mode, or grew a new owner's rights, is put right.
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	sum, _ = HookSum(binary)
	if err := VerifyHook(path, sum); !errors.Is(err, sharing.ErrStale) {
		t.Errorf("mode 0777: %v, want %v", err, sharing.ErrStale)
	}
	if _, err := InstallHook(dir, "v1", binary); err != nil || VerifyHook(path, sum) != nil {
		t.Errorf("not put right: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := VerifyHook(path, sum); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("removed: %v, want %v", err, sharing.ErrNotFound)
	}
}

func TestHookVersion(t *testing.T) {
	path := writeFile(t, t.TempDir(), "kerf-hook", "right")
	change := map[string]func() error{
		"other content of the same size and time": func() error {
			info, err := os.Stat(path)
			return errors.Join(err, os.WriteFile(path, []byte("wrong"), 0o755),
				os.Chtimes(path, info.ModTime(), info.ModTime()))
		},
		"mode":  func() error { return os.Chmod(path, 0o777) },
		"owner": func() error { return os.Chown(path, 1, 1) },
		"another file": func() error {
			data, err := os.ReadFile(path)
			return errors.Join(err, os.Remove(path), os.WriteFile(path, data, 0o755))
		},
	}
	for name, f := range change {
		before := HookVersion(path)
		if again := HookVersion(path); before == "" || again != before {
			t.Errorf("%s: untouched it looks like %q and %q", name, before, again)
		}
		time.Sleep(20 * time.Millisecond) // the file system's clock ticks slower than the machine's
		if err := f(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if after := HookVersion(path); after == before || after == "" {
			t.Errorf("%s: before %q, after %q", name, before, after)
		}
	}
	if err := os.Remove(path); err != nil || HookVersion(path) != "" {
		t.Errorf("removed (%v): %q", err, HookVersion(path))
	}
}

func TestInstallHookKeepsThePreviousVersion(t *testing.T) {
	dir := t.TempDir()
	binary := writeFile(t, t.TempDir(), "kerf-hook", "program")
	at := time.Now().Add(-time.Hour)
	install := func(version string, want ...string) {
		t.Helper()
		if path, err := InstallLibrary(dir, version, binary); err != nil ||
			path != filepath.Join(dir, version, "libkerf.so") {
			t.Fatal(path, err)
		}
		if _, err := InstallHook(dir, version, binary); err != nil {
			t.Fatal(err)
		}
		if got := versions(t, dir); !slices.Equal(got, want) {
			t.Errorf("after %s: %q, want %q", version, got, want)
		}
		// Installs lie apart in time.
		at = at.Add(time.Minute)
		if err := os.Chtimes(filepath.Join(dir, version), at, at); err != nil {
			t.Fatal(err)
		}
	}
	install("v1", "v1")
	install("v2", "v1", "v2")
	install("v3", "v2", "v3")
	install("v2", "v2", "v3") // back
	install("v4", "v2", "v4") // v2 is what specs named last
	foreign := filepath.Join(dir, "v0", "notes")
	if err := os.MkdirAll(filepath.Dir(foreign), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "README", "x")
	writeFile(t, filepath.Dir(foreign), "notes", "x")
	writeFile(t, filepath.Dir(foreign), "kerf-hook", "x")
	install("v5", "README", "v0", "v4", "v5")
}

func TestInstallHookRefuses(t *testing.T) {
	good := t.TempDir()
	binary := writeFile(t, t.TempDir(), "kerf-hook", "program")
	open := t.TempDir()
	if err := os.Chmod(open, 0o775); err != nil {
		t.Fatal(err)
	}
	openVersion := t.TempDir()
	if err := os.Mkdir(filepath.Join(openVersion, "v1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(openVersion, "v1"), 0o757); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		dir, version, binary string
		want                 error
	}{
		"no version":            {good, "", binary, sharing.ErrInvalid},
		"version with a path":   {good, "v1/../..", binary, sharing.ErrInvalid},
		"version of dots":       {good, "..", binary, sharing.ErrInvalid},
		"version with spaces":   {good, "v 1", binary, sharing.ErrInvalid},
		"long version":          {good, strings.Repeat("v", 65), binary, sharing.ErrInvalid},
		"no program":            {good, "v1", filepath.Join(good, "missing"), sharing.ErrNotFound},
		"a folder":              {good, "v1", good, sharing.ErrInvalid},
		"empty program":         {good, "v1", writeFile(t, t.TempDir(), "kerf-hook", ""), sharing.ErrInvalid},
		"folder of a group":     {open, "v1", binary, sharing.ErrDenied},
		"version folder of all": {openVersion, "v1", binary, sharing.ErrDenied},
		"relative":              {"opt", "v1", binary, sharing.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			if path, err := InstallHook(tc.dir, tc.version, tc.binary); !errors.Is(err, tc.want) || path != "" {
				t.Errorf("%q (%v), want %v", path, err, tc.want)
			}
			if _, err := os.Stat(filepath.Join(tc.dir, tc.version, "kerf-hook")); err == nil {
				t.Error("a program stands there")
			} else if !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		})
	}
}
