// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// faulty is the real filesystem with one step that fails.
type faulty struct {
	system
	step string
	err  error
}

type faultyFile struct {
	file
	of faulty
}

func (f faulty) fail(step string) error {
	if f.step == step {
		return f.err
	}
	return nil
}

func (f faulty) create(dir, pattern string) (file, error) {
	if err := f.fail("create"); err != nil {
		return nil, err
	}
	made, err := f.system.create(dir, pattern)
	return faultyFile{made, f}, err
}

func (f faulty) rename(from, to string) error {
	if err := f.fail("rename"); err != nil {
		return err
	}
	return f.system.rename(from, to)
}

func (f faulty) syncDir(dir string) error {
	if err := f.fail("syncdir"); err != nil {
		return err
	}
	return f.system.syncDir(dir)
}

// Write writes half and then fails, as a full disk does.
func (f faultyFile) Write(b []byte) (int, error) {
	if err := f.of.fail("write"); err != nil {
		n, _ := f.file.Write(b[:len(b)/2])
		return n, err
	}
	return f.file.Write(b)
}

func (f faultyFile) Chmod(m fs.FileMode) error {
	if err := f.of.fail("chmod"); err != nil {
		return err
	}
	return f.file.Chmod(m)
}

func (f faultyFile) Sync() error {
	if err := f.of.fail("sync"); err != nil {
		return err
	}
	return f.file.Sync()
}

func (f faultyFile) Close() error {
	return errors.Join(f.file.Close(), f.of.fail("close"))
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestFailureAtEachStepKeepsTheOldFile(t *testing.T) {
	tests := map[string]struct {
		err     error
		want    error
		content string
	}{
		"create":  {syscall.EACCES, sharing.ErrDenied, "old"},
		"write":   {syscall.ENOSPC, sharing.ErrUnavailable, "old"},
		"chmod":   {syscall.EROFS, sharing.ErrDenied, "old"},
		"sync":    {syscall.EIO, sharing.ErrUnavailable, "old"},
		"close":   {syscall.EDQUOT, sharing.ErrUnavailable, "old"},
		"rename":  {syscall.ENOENT, sharing.ErrNotFound, "old"},
		"syncdir": {syscall.EIO, sharing.ErrUnavailable, "new content"},
	}
	for step, tc := range tests {
		t.Run(step, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "record.json")
			if err := Write(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			err := write(faulty{step: step, err: tc.err}, path, []byte("new content"), 0o600)
			if !errors.Is(err, tc.want) || !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v and %v", err, tc.want, tc.err)
			}
			if step != "create" && !strings.Contains(err.Error(), path) {
				t.Errorf("error %q does not name the file", err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != tc.content {
				t.Errorf("content %q (%v), want %q", got, err, tc.content)
			}
			if got := names(t, dir); len(got) != 1 {
				t.Errorf("directory holds %q, want the file alone", got)
			}
		})
	}
}

func TestWriteSetsContentAndMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, mode := range []fs.FileMode{0o600, 0o666, 0o640} {
		if err := Write(path, []byte(mode.String()), mode); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm() != mode {
			t.Errorf("mode %v, want %v", st.Mode().Perm(), mode)
		}
	}
}

func TestWriteReplacesASymlink(t *testing.T) {
	dir := t.TempDir()
	victim, link := filepath.Join(dir, "victim"), filepath.Join(dir, "link")
	if err := os.WriteFile(victim, []byte("victim"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, link); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(victim); string(got) != "victim" {
		t.Errorf("the link was followed: %q", got)
	}
	if st, err := os.Lstat(link); err != nil || !st.Mode().IsRegular() {
		t.Errorf("link is %v (%v), want a regular file", st, err)
	}
}

func TestWriteRefusesWhatIsNoFileName(t *testing.T) {
	for _, path := range []string{"", "/", "dir/", ".", ".."} {
		if err := Write(path, nil, 0o600); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("Write(%q) = %v, want ErrInvalid", path, err)
		}
	}
	if err := Write(filepath.Join(t.TempDir(), "none", "f"), nil, 0o600); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("missing directory: %v, want ErrNotFound", err)
	}
}

func TestCleanTempRemovesLeftoversOnly(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{tempPrefix + "record.json-123", "record.json", ".kerf", "x" + tempPrefix} {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, tempPrefix+"dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := CleanTemp(dir); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(names(t, dir), " ")
	if want := ".kerf .kerf-tmp-dir record.json x.kerf-tmp-"; got != want {
		t.Errorf("left %q, want %q", got, want)
	}
	if err := CleanTemp(filepath.Join(dir, "none")); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("missing directory: %v, want ErrNotFound", err)
	}
}

// A reader must never see anything but one of the whole contents.
func TestReadersSeeWholeContents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	a, b := strings.Repeat("a", 1<<16), strings.Repeat("b", 1<<15)
	if err := Write(path, []byte(a), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			got, err := os.ReadFile(path)
			if err != nil || (string(got) != a && string(got) != b) {
				t.Errorf("read %d bytes (%v): neither old nor new", len(got), err)
				return
			}
		}
	})
	for i := range 50 {
		if err := Write(path, []byte([]string{a, b}[i%2]), 0o600); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
}

// Who writes again and again, and tells of a new error only, must know the old one again.
func TestSameErrorTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spec.json")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	first, second := Write(path, []byte("x"), 0o644), Write(path, []byte("x"), 0o644)
	if first == nil || second == nil || first.Error() != second.Error() || !errors.Is(first, syscall.EEXIST) {
		t.Errorf("the errors are\n%v\n%v", first, second)
	}
}
