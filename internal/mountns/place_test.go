// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/sharing"
)

// namesIn are the names in a folder, and contentOf is what a file contains; "" if it cannot be read.
func namesIn(folder string) (names []string) {
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func contentOf(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

// etcLike is a folder with a file, a subfolder, a link and a socket.
func etcLike(t *testing.T) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "etc")
	err := errors.Join(
		os.MkdirAll(filepath.Join(folder, "sub"), 0o755),
		os.WriteFile(filepath.Join(folder, "hosts"), []byte("hosts"), 0o600),
		os.WriteFile(filepath.Join(folder, "sub", "inner"), []byte("inner"), 0o600),
		os.Symlink("sub/inner", filepath.Join(folder, "link")),
		unix.Mkfifo(filepath.Join(folder, "fifo"), 0o600),
		os.Chmod(folder, 0o751),
	)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// The file exists in the namespace alone. The rest of the folder is as before, and what is written into it arrives.
func TestPlace(t *testing.T) {
	folder := etcLike(t)
	at := func(name string) string { return filepath.Join(folder, name) }
	before := namesIn(folder)
	library := filepath.Join(t.TempDir(), "preload")
	if err := os.WriteFile(library, []byte("library"), 0o600); err != nil {
		t.Fatal(err)
	}
	masked(t, nil, func() error {
		if err := mountns.Place(at("ld.so.preload")); err != nil {
			return err
		}
		want := slices.Sorted(slices.Values(append(slices.Clone(before), "ld.so.preload")))
		if got := namesIn(folder); !slices.Equal(got, want) {
			t.Errorf("the folder has %q, want %q", got, want)
		}
		if got := contentOf(at("hosts")) + contentOf(at("link")) + contentOf(at("ld.so.preload")); got != "hostsinner" {
			t.Errorf("the files contain %q", got)
		}
		info, err := os.Stat(folder)
		if err != nil || info.Mode().Perm() != 0o751 {
			t.Errorf("the folder: %v, %v", info.Mode(), err)
		}
		if err := os.WriteFile(at("new"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("a new file: %v, want an error", err)
		}
		if err := errors.Join(os.WriteFile(at("hosts"), []byte("changed"), 0o600),
			os.WriteFile(at("sub/new"), nil, 0o600)); err != nil {
			t.Errorf("a write below the folder: %v", err)
		}
		return mountns.Bind([]sharing.Mount{{Source: library, Target: at("ld.so.preload"), ReadOnly: true}})
	})
	if got := namesIn(folder); !slices.Equal(got, before) {
		t.Errorf("outside of the namespace the folder has %q, want %q", got, before)
	}
	if got := namesIn(at("sub")); contentOf(at("hosts")) != "changed" || !slices.Equal(got, []string{"inner", "new"}) {
		t.Errorf("what was written: %q, %q", contentOf(at("hosts")), got)
	}
}

// A file that exists stays as it is, with all other files.
func TestPlaceOfAFileThatExists(t *testing.T) {
	folder := etcLike(t)
	masked(t, nil, func() error {
		if err := mountns.Place(filepath.Join(folder, "hosts")); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(folder, "new"), nil, 0o600)
	})
	if _, err := os.Stat(filepath.Join(folder, "new")); err != nil {
		t.Error(err)
	}
}

// None of these mounts anything, so no namespace is needed.
func TestPlaceRejects(t *testing.T) {
	folder := etcLike(t)
	for path, want := range map[string]error{
		"relative":                          sharing.ErrInvalid,
		filepath.Join(folder, "no", "file"): sharing.ErrNotFound,
		filepath.Join(folder, "hosts", "x"): sharing.ErrUnavailable,
	} {
		if err := mountns.OnThread(func() error { return mountns.Place(path) }); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", path, err, want)
		}
	}
}

// A user who may mount, and has no other right of root, can place a file in root's folder.
func TestPlaceAsAUserWhoMayMount(t *testing.T) {
	folder := etcLike(t)
	for d := folder; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil { // another user is to read it
			t.Fatal(err)
		}
	}
	masked(t, nil, func() error {
		if err := onlyMount(1234); err != nil {
			return fmt.Errorf("become a user: %w", err)
		}
		return mountns.Place(filepath.Join(folder, "ld.so.preload"))
	})
}

// onlyMount makes the calling thread one of a user whose only capability is CAP_SYS_ADMIN.
func onlyMount(uid uintptr) error {
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 { // of this thread alone
		return errno
	}
	var caps [2]unix.CapUserData
	caps[0].Effective, caps[0].Permitted = 1<<unix.CAP_SYS_ADMIN, 1<<unix.CAP_SYS_ADMIN
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0])
}
