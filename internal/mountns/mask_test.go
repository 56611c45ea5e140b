// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/sharing"
)

// masked hides paths on a separate thread and runs look there. It skips the test only if the kernel itself reports that
// mounting is not permitted.
func masked(t *testing.T, paths []string, look func() error) {
	t.Helper()
	err := mountns.OnThread(func() error {
		if err := mountns.Mask(paths); err != nil {
			return err
		}
		return look()
	})
	if errors.Is(err, sharing.ErrDenied) && !mountns.Allowed() {
		t.Skipf("mounting needs CAP_SYS_ADMIN: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// openErr is the error of opening path on the calling thread.
func openErr(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// connectErr is the error of connecting to the socket at path on the calling thread.
func connectErr(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
}

func TestMaskHidesACharacterDevice(t *testing.T) {
	dir := t.TempDir()
	device, other := filepath.Join(dir, "nvidia1"), filepath.Join(dir, "nvidia0")
	for _, p := range []string{device, other} {
		if err := unix.Mknod(p, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); errors.Is(err, unix.EPERM) {
			t.Skip("making device files needs CAP_MKNOD")
		} else if err != nil {
			t.Fatal(err)
		}
	}
	// A file system that allows no devices would make the test pass for the wrong reason.
	if err := openErr(device); err != nil {
		t.Skipf("device files do not work in %s: %v", dir, err)
	}
	masked(t, []string{device}, func() error {
		if err := openErr(device); !errors.Is(err, unix.EACCES) {
			t.Errorf("open of the hidden device: %v, want EACCES", err)
		}
		if err := openErr(other); err != nil {
			t.Errorf("open of the device that was not hidden: %v", err)
		}
		var st unix.Stat_t
		if err := unix.Stat(device, &st); err != nil || st.Rdev != unix.Mkdev(1, 3) {
			t.Errorf("stat of the hidden device: %v, device %x, want its own number", err, st.Rdev)
		}
		return nil
	})
	if err := openErr(device); err != nil {
		t.Errorf("outside of the namespace the device must still open: %v", err)
	}
}

func TestMaskHidesASocket(t *testing.T) {
	dir := t.TempDir()
	hidden, open := filepath.Join(dir, "nvidia1"), filepath.Join(dir, "nvidia0")
	for _, p := range []string{hidden, open} {
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: p, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	masked(t, []string{hidden, hidden}, func() error {
		if err := connectErr(hidden); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connect to the hidden socket: %v, want ECONNREFUSED", err)
		}
		if err := openErr(hidden); err == nil {
			t.Error("the stand-in for the hidden socket can be opened")
		}
		if err := connectErr(open); err != nil {
			t.Errorf("connect to the socket that was not hidden: %v", err)
		}
		return nil
	})
	if err := connectErr(hidden); err != nil {
		t.Errorf("outside of the namespace the socket must still answer: %v", err)
	}
}

func TestMaskSkipsWhatIsNotThere(t *testing.T) {
	masked(t, []string{filepath.Join(t.TempDir(), "absent")}, func() error { return nil })
}

// Nothing may be left half hidden without an error.
func TestMaskRefusesRelativePaths(t *testing.T) {
	err := mountns.OnThread(func() error { return mountns.Mask([]string{"dev/nvidia0"}) })
	if !errors.Is(err, sharing.ErrInvalid) {
		t.Fatalf("got %v, want ErrInvalid", err)
	}
}

func TestAllowedFollowsTheCapability(t *testing.T) {
	data, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	want := effective(t, string(data))&(1<<unix.CAP_SYS_ADMIN) != 0
	if got := mountns.Allowed(); got != want {
		t.Errorf("Allowed() = %t, /proc says %t", got, want)
	}
	err = mountns.OnThread(func() error {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			return err
		}
		if mountns.Allowed() {
			t.Error("allowed without any capability")
		}
		if err := mountns.Mask(nil); !errors.Is(err, sharing.ErrDenied) {
			t.Errorf("Mask without any capability: %v, want ErrDenied", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// effective reads the effective capabilities out of a /proc/.../status text.
func effective(t *testing.T, status string) uint64 {
	t.Helper()
	_, rest, ok := strings.Cut(status, "CapEff:\t")
	if !ok {
		t.Fatal("no CapEff in /proc status")
	}
	line, _, _ := strings.Cut(rest, "\n")
	v, err := strconv.ParseUint(line, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
