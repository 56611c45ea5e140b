// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestKill(t *testing.T) {
	refused := errors.New("it left its cgroup")
	tests := map[string]struct {
		later uint64 // added to the start time
		check error
		want  error
	}{
		"the process":           {},
		"another has its pid":   {later: 1, want: sharing.ErrStale},
		"the check disagrees":   {check: refused, want: refused},
		"both speak against it": {later: 1, check: refused, want: sharing.ErrStale},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cmd, end := cat(t)
			start, err := StartOf(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			err = Kill(cmd.Process.Pid, start+tt.later, func() error { return tt.check })
			if !errors.Is(err, tt.want) {
				t.Errorf("Kill: %v, want %v", err, tt.want)
			}
			if tt.want != nil {
				end() // it still reads its input, and ends well
			}
			var exit *exec.ExitError
			err = cmd.Wait()
			killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
			if killed != (tt.want == nil) {
				t.Errorf("the process ended with %v, killed %v", err, killed)
			}
		})
	}
}

// A process that ends while it is looked at is not signalled: its pid may be another's at once.
func TestKillOfOneThatEndsMeanwhile(t *testing.T) {
	cmd, end := cat(t)
	start, err := StartOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	err = Kill(cmd.Process.Pid, start, func() error {
		end()
		waitExited(t, cmd.Process.Pid)
		return nil
	})
	if !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("Kill: %v, want ErrNotFound", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the process ended with %v", err)
	}
	for what, err := range map[string]error{
		"start":   second(StartOf(cmd.Process.Pid)),
		"program": second(Program(cmd.Process.Pid)),
	} {
		if !errors.Is(err, sharing.ErrNotFound) {
			t.Errorf("%s of no process: %v, want ErrNotFound", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestProgram(t *testing.T) {
	want, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Program(os.Getpid()); err != nil || got != want {
		t.Errorf("this program is %q, %v; want %q", got, err, want)
	}
	cmd, end := cat(t)
	defer func() { end(); _ = cmd.Wait() }()
	if got, err := Program(cmd.Process.Pid); err != nil || !strings.HasPrefix(got, "/") {
		t.Errorf("cat is %q, %v", got, err)
	}
}

// The kernel gives the PID of an ended process to another one, which must not be killed. The PIDs are in a separate
// namespace, where no other program uses the next one.
func TestKillAfterThePidWasGivenAgain(t *testing.T) {
	const last, inside = "/proc/sys/kernel/ns_last_pid", "KERF_TEST_OWN_PIDS"
	if os.Getenv(inside) == "" {
		if os.Geteuid() != 0 {
			t.Skip("its own pids need root:", sharing.ErrDenied)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", `mount -t proc proc /proc && exec "$0" "$@"`, os.Args[0],
			"-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
			Unshareflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		switch {
		case err != nil:
			t.Errorf("%v\n%s", err, out)
		case bytes.Contains(out, []byte("--- SKIP")):
			t.Skip(string(out), sharing.ErrUnsupported)
		}
		return
	}
	if f, err := os.OpenFile(last, os.O_WRONLY, 0); err != nil {
		t.Skip("pids cannot be chosen here:", err, sharing.ErrDenied)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	first, end := cat(t)
	pid := first.Process.Pid
	start, err := StartOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	end()
	if err := first.Wait(); err != nil {
		t.Fatal(err)
	}
	// Start times have steps of a hundredth of a second; a kernel that counts pids up needs longer to come round.
	time.Sleep(50 * time.Millisecond)
	for range 200 {
		if err := os.WriteFile(last, []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Skip("pids cannot be chosen here:", err, sharing.ErrDenied)
		}
		second, end := cat(t)
		if second.Process.Pid == pid {
			if err := Kill(pid, start, func() error { return nil }); !errors.Is(err, sharing.ErrStale) {
				t.Errorf("Kill: %v, want ErrStale", err)
			}
			end()
			if err := second.Wait(); err != nil {
				t.Errorf("the other process ended with %v", err)
			}
			return
		}
		end() // another process of the machine was faster
		if err := second.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	t.Skip("pids are taken too fast here to choose one:", sharing.ErrUnsupported)
}

// Root without CAP_KILL may not end another user's process, and the error names the missing capability.
func TestKillOfAnotherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a process of another user needs root:", sharing.ErrDenied)
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fine := func() error { return nil }
	without(t, unix.CAP_KILL, func() {
		if err := KillNow(cmd.Process.Pid, fine); !errors.Is(err, sharing.ErrDenied) ||
			!strings.Contains(err.Error(), "capability KILL") {
			t.Errorf("without the capability: %v", err)
		}
	})
	if err := KillNow(cmd.Process.Pid, fine); err != nil {
		t.Errorf("with it: %v", err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", err)
	}
}

// without runs f while the thread lacks a capability, one of the first 32.
func without(t *testing.T, capability int, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	if err := unix.Capget(&head, &all[0]); err != nil {
		t.Fatal(err)
	}
	less := all
	less[0].Effective &^= 1 << capability
	if err := unix.Capset(&head, &less[0]); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Capset(&head, &all[0]); err != nil {
			t.Error(err)
		}
	}()
	f()
}
