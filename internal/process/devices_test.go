// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// openerHow makes this test binary a process that opens the file openerFile in one of the ways of openers.
const openerHow, openerFile = "KERF_TEST_OPEN_HOW", "KERF_TEST_OPEN_FILE"

func openers() map[string]func(path string) error {
	open := func(path string, flags int) error {
		_, err := unix.Open(path, flags, 0)
		return err
	}
	return map[string]func(path string) error{
		"not":        func(string) error { return nil },
		"descriptor": func(path string) error { return open(path, unix.O_RDONLY|unix.O_CLOEXEC) },
		"path":       func(path string) error { return open(path, unix.O_PATH|unix.O_CLOEXEC) },
		"closed": func(path string) error {
			fd, err := unix.Open(path, unix.O_RDONLY, 0)
			return errors.Join(err, unix.Close(fd))
		},
		"mapping": func(path string) error {
			fd, err := unix.Open(path, unix.O_RDWR, 0)
			_, err2 := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
			return errors.Join(err, err2, unix.Close(fd))
		},
		"thread": func(path string) error { return inThread(func() error { return open(path, unix.O_RDONLY) }) },
	}
}

// inThread calls f in a thread with separate descriptors. It is not the process's first thread and lives on.
func inThread(f func() error) error {
	done := make(chan error)
	var work func()
	work = func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			go work() // this thread is taken, so that is another one
			select {}
		}
		done <- errors.Join(unix.Unshare(unix.CLONE_FILES), f())
		select {}
	}
	go work()
	return <-done
}

// TestOpener is the other process.
func TestOpener(t *testing.T) {
	how := os.Getenv(openerHow)
	if how == "" {
		t.Skip("it is run by TestOpenDevices")
	}
	if err := openers()[how](os.Getenv(openerFile)); err != nil {
		t.Fatal(err)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// opener starts a process that opens a file and lives until the test ends.
func opener(t *testing.T, how, path string) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOpener$", "-test.v")
	cmd.Env = append(os.Environ(), openerHow+"="+how, openerFile+"="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, lines)
		_ = cmd.Wait()
	})
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the other process could not do it: %q %v", line, err)
		}
		if line == "ready\n" {
			return cmd.Process.Pid
		}
	}
}

func deviceFile(t *testing.T, path string) DeviceFile {
	t.Helper()
	d, err := DeviceFileAt(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// socketFile makes a socket, as the simulated driver has in place of a device.
func socketFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return path
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes device nodes, or becomes another user")
	}
}

func TestOpenDevices(t *testing.T) {
	asRoot(t)
	socket := socketFile(t)
	node := filepath.Join(t.TempDir(), "node") // as a container has it: another inode of the device
	if err := unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, make([]byte, os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	zero := deviceFile(t, "/dev/zero")
	files := []DeviceFile{zero, deviceFile(t, socket), deviceFile(t, plain), deviceFile(t, "/dev/full"), {}}
	for _, c := range []struct {
		how, path string
		want      int // in files; -1: none
	}{
		{"not", "", -1}, {"closed", node, -1}, {"descriptor", node, 0}, {"descriptor", "/dev/zero", 0},
		{"path", socket, 1},
		{"descriptor", plain, 2}, {"mapping", node, 0}, {"mapping", plain, 2}, {"thread", node, 0},
		{"thread", plain, 2},
	} {
		t.Run(c.how+" "+filepath.Base(c.path), func(t *testing.T) {
			got, err := OpenDevices(opener(t, c.how, c.path), files)
			want := make([]bool, len(files))
			if c.want >= 0 {
				want[c.want] = true
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%v %v, want %v", got, err, want)
			}
		})
	}
	if got, err := OpenDevices(os.Getpid(), nil); err != nil || len(got) != 0 {
		t.Errorf("of no files: %v %v", got, err)
	}
}

func TestOpenDevicesUnknown(t *testing.T) {
	if _, err := OpenDevices(1<<30, []DeviceFile{{}}); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("of no process: %v", err)
	}
	cmd, end := cat(t)
	end()
	waitExited(t, cmd.Process.Pid)
	got, err := OpenDevices(cmd.Process.Pid, []DeviceFile{deviceFile(t, "/dev/null")})
	if err != nil || got[0] {
		t.Errorf("of a zombie: %v %v", got, err)
	}
	_ = cmd.Wait() // it ended by itself
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	_, err = OpenDevices(os.Getpid(), []DeviceFile{{}})
	if restored := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); restored != nil {
		t.Fatal(restored)
	}
	if !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("out of descriptors: %v", err)
	}
}

// TestOpenDevicesDenied asks as a user who may not look at another's process.
func TestOpenDevicesDenied(t *testing.T) {
	asRoot(t)
	err := inThread(func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			return errno
		}
		if _, err := OpenDevices(os.Getppid(), []DeviceFile{{}}); !errors.Is(err, sharing.ErrDenied) {
			return fmt.Errorf("of another's process: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDeviceFileAt(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/dev/full", link); err != nil {
		t.Fatal(err)
	}
	if deviceFile(t, link) != deviceFile(t, "/dev/full") || deviceFile(t, link) == deviceFile(t, "/dev/zero") {
		t.Error("a link is not the file behind it")
	}
	if deviceFile(t, dir) == deviceFile(t, link) || deviceFile(t, dir) == (DeviceFile{}) {
		t.Error("two files are one")
	}
	if _, err := DeviceFileAt(filepath.Join(dir, "absent")); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("of no file: %v", err)
	}
}
