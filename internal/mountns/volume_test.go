// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/sharing"
)

// small is a volume with room for one page and, besides its root, one file.
func small() mountns.Volume {
	return mountns.Volume{Size: sharing.Bytes(os.Getpagesize()), Inodes: 2, Owner: 4711}
}

// mountSmall mounts a volume that the test takes away again. It skips only without the right to mount.
func mountSmall(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "v")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mountns.Unmount(dir); err != nil {
			t.Error(err)
		}
	})
	if err := small().Mount(dir); errors.Is(err, sharing.ErrDenied) && !mountns.Allowed() {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestVolumeIsItsOwners(t *testing.T) {
	dir := mountSmall(t)
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Stat(dir, &st), unix.Statfs(dir, &fs)); err != nil {
		t.Fatal(err)
	}
	if st.Mode&0o7777 != 0o700 || st.Uid != 4711 || st.Gid != 0 {
		t.Errorf("mode %#o, owner %d:%d", st.Mode&0o7777, st.Uid, st.Gid)
	}
	if want := int64(unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC); fs.Flags&want != want {
		t.Errorf("flags %#x", fs.Flags)
	}
}

func TestVolumeCannotGrow(t *testing.T) {
	dir := mountSmall(t)
	file := filepath.Join(dir, "f")
	page := make([]byte, os.Getpagesize())
	if err := os.WriteFile(file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(page, 1), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a byte more than its size: %v", err)
	}
	for name, try := range map[string]func(path string) error{
		"file":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":   func(path string) error { return os.Symlink("/", path) },
		"name":   func(path string) error { return os.Link(file, path) },
	} {
		if err := try(filepath.Join(dir, name)); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("a %s more than its inodes: %v", name, err)
		}
	}
}

func TestUnmountTakesEveryMount(t *testing.T) {
	dir := mountSmall(t)
	if err := small().Mount(dir); err != nil { // a second one above the first
		t.Fatal(err)
	}
	for range 2 {
		if err := mountns.Unmount(dir); err != nil {
			t.Fatal(err)
		}
	}
	if mounted, err := mountns.Mounted(dir); mounted || err != nil {
		t.Errorf("mounted: %v, %v", mounted, err)
	}
	if err := mountns.Unmount(filepath.Join(dir, "absent")); err != nil {
		t.Errorf("a folder that does not exist: %v", err)
	}
}

func TestVolumeRejects(t *testing.T) {
	if err := small().Mount("v"); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("a relative path: %v", err)
	}
	if err := small().Mount(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("no folder: %v", err)
	}
}

// helperDir names the folder for TestHelper, and helperHide says that it hides the host's folder first.
const helperDir, helperHide = "KERF_TEST_VOLUME", "KERF_TEST_HIDE"

// TestHelper is not a test: it mounts a volume from a separate mount namespace, for the tests below.
func TestHelper(t *testing.T) {
	dir := os.Getenv(helperDir)
	if dir == "" {
		t.Skip("runs only as a helper")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		t.Fatal(err)
	}
	if os.Getenv(helperHide) != "" {
		if err := errors.Join(unix.Mount("t", filepath.Dir(dir), "tmpfs", 0, ""), os.Mkdir(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := small().Mount(dir); err != nil {
		fmt.Println("rejected:", err)
		return
	}
	mounted, err := mountns.Mounted(dir)
	fmt.Println("mounted:", mounted, err)
}

// A process with separate mounts, as in a container, mounts for the host. It counts only if the mount reaches it.
func TestVolumeFromAnotherNamespace(t *testing.T) {
	if !mountns.Allowed() {
		t.Skip("mounting needs CAP_SYS_ADMIN")
	}
	for name, tt := range map[string]struct {
		shared bool
		env    string
		want   string
		onHost bool
	}{
		"shared":         {true, "", "mounted: true", true},
		"not shared":     {false, "", "HostToContainer", false},
		"another folder": {true, helperHide + "=1", "another folder", false},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			if err := unix.Mount("t", base, "tmpfs", 0, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(base, unix.MNT_DETACH) })
			if tt.shared {
				if err := unix.Mount("", base, "", unix.MS_SHARED, ""); err != nil {
					t.Fatal(err)
				}
			}
			dir := filepath.Join(base, "parent", "v")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestHelper$")
			c.Env = append(os.Environ(), helperDir+"="+dir, tt.env)
			c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
			out, err := c.CombinedOutput()
			if err != nil || !strings.Contains(string(out), tt.want) {
				t.Errorf("%v, %s, want %q", err, out, tt.want)
			}
			if mounted, err := mountns.Mounted(dir); mounted != tt.onHost || err != nil {
				t.Errorf("on the host: %v, %v", mounted, err)
			}
		})
	}
}

// A process whose mounts are its own sees the volume once it was shown to it, and no more when the folder has gone.
func TestShow(t *testing.T) {
	dir := mountSmall(t)
	if err := mountns.Show(dir, os.Getpid()); err != nil {
		t.Errorf("to itself: %v", err)
	}
	c := exec.CommandContext(t.Context(), "cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // private to it
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = c.Wait() }()
	late := filepath.Join(filepath.Dir(dir), "late")
	if err := os.Mkdir(late, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := small().Mount(late); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mountns.Unmount(late) })
	file := filepath.Join(late, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	there := fmt.Sprintf("/proc/%d/root", c.Process.Pid)
	if _, err := os.Stat(there + file); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("before it was shown: %v", err)
	}
	for range 2 {
		if err := mountns.Show(late, c.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(there + file); err != nil {
		t.Errorf("after it was shown: %v", err)
	}
	if err := errors.Join(mountns.Unmount(late), os.Remove(late)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(there + late); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after its end: %v", err)
	}
	if err := mountns.Show(dir, 1<<30); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("to no process: %v", err)
	}
}
