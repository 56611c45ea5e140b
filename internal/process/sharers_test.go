// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// sharerFlags makes this test binary a process with a child that was cloned with these flags.
const sharerFlags = "KERF_TEST_CLONE_FLAGS"

// TestSharer is the process with the child.
func TestSharer(t *testing.T) {
	text := os.Getenv(sharerFlags)
	if text == "" {
		t.Skip("it is run by TestSharers")
	}
	flags, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		runtime.LockOSThread()
		// The child makes system calls alone: with CLONE_VM it has the parent's stack, and the parent's thread waits.
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(flags)|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		for errno == 0 && pid == 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_PPOLL, 0, 0, 0)
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0) // with CLONE_VFORK a thread still waits for the child
}

func TestSharers(t *testing.T) {
	for name, tc := range map[string]struct {
		flags  int
		shares bool
	}{
		"fork":            {0, false},
		"shared files":    {unix.CLONE_FILES, true},
		"shared memory":   {unix.CLONE_VM | unix.CLONE_VFORK, true},
		"memory and file": {unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_FILES, true},
	} {
		t.Run(name, func(t *testing.T) {
			parent, child := sharer(t, tc.flags)
			wantSharers(t, []int{parent}, tc.shares, child)
			wantSharers(t, []int{child}, tc.shares, parent)
			wantSharers(t, []int{child, parent}, false, 0)
		})
	}
	wantSharers(t, []int{os.Getpid()}, false, 0)
	wantSharers(t, []int{1 << 30}, false, 0)
}

func wantSharers(t *testing.T, of []int, shares bool, with int) {
	t.Helper()
	var want []int
	if shares {
		want = []int{with}
	}
	if got, err := SharingProcesses(of); err != nil || !slices.Equal(got, want) {
		t.Errorf("sharers of %v: %v, %v; want %v", of, got, err, want)
	}
}

// sharer starts a process with a child, which live until the test ends.
func sharer(t *testing.T, flags int) (parent, child int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSharer$")
	cmd.Env = append(os.Environ(), sharerFlags+"="+strconv.Itoa(flags))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	for child == 0 { // the test's own time limit ends it
		child = childOf(t, cmd.Process.Pid)
		runtime.Gosched()
	}
	t.Cleanup(func() { _ = unix.Kill(child, unix.SIGKILL) })
	return cmd.Process.Pid, child
}

// childOf is the process that any thread of the process made; 0 for none.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/task/" + task.Name() + "/children")
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := bufio.NewReader(f).ReadString(' ')
		_ = f.Close()
		if child, bad := strconv.Atoi(strings.TrimSpace(text)); err == nil && bad == nil {
			return child
		}
	}
	return 0
}

func BenchmarkSharers(b *testing.B) {
	for b.Loop() {
		if _, err := SharingProcesses([]int{os.Getpid()}); err != nil {
			b.Fatal(err)
		}
	}
}
