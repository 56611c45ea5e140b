// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/test/eventually"
)

// listed returns what the daemon says of processes: its own truth.
func listed(t *testing.T, dir string) []control.Process {
	t.Helper()
	var all []control.Process
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := control.Call(ctx, dir, control.Request{Command: control.CmdProcesses}, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// has tells which of a node's device files a process has open: nvidiactl, nvidia0 and nvidia1.
func has(t *testing.T, dir string, pid int) []bool {
	t.Helper()
	var files []process.DeviceFile
	for _, name := range []string{"nvidiactl", "nvidia0", "nvidia1"} {
		f, err := process.DeviceFileAt(filepath.Join(dir, "dev", name))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	open, err := process.OpenDevices(pid, files)
	if err != nil {
		t.Fatal(err)
	}
	return open
}

// orphan runs a scenario that takes memory of GPU 0, ends, and leaves a child; it returns both pids. The child is
// killed at the end of the test, if not by end.
func orphan(t *testing.T, dir, scenario string) (parent, child int, end func()) {
	t.Helper()
	cmd, out, errout := command(t, dir, []string{"CUDA_VISIBLE_DEVICES=0", "PATH=" + os.Getenv("PATH")},
		"check/cudacheck", scenario)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v %s", err, errout)
	}
	child, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	h, err := process.Open(child)
	if err != nil {
		t.Fatalf("the child, which was to live on: %v", err)
	}
	end = func() {
		if h.Alive() {
			if err := h.Signal(unix.SIGKILL); err != nil {
				t.Error(err)
			}
			eventually.True(t, "the end of the child", func() bool { return !h.Alive() })
		}
	}
	t.Cleanup(func() {
		end()
		h.Close()
	})
	return cmd.Process.Pid, child, end
}

// TestCUDAMemoryOfAParentThatEnds has a child live on that was forked after CUDA was initialized: the everyday case of
// a trainer that is killed and whose data loaders run on.
func TestCUDAMemoryOfAParentThatEnds(t *testing.T) {
	for _, driver := range []string{"r550", "r580", "r615"} {
		dir := node(t, "h100x8", driver)
		parent, child, end := orphan(t, dir, "orphan")
		all := listed(t, dir)
		if len(all) != 1 || all[0].PID != parent || !all[0].Ended || uint64(all[0].Bytes) != h100Context+2*mib {
			t.Errorf("%s: %+v, want process %d, which has ended", driver, all, parent)
		}
		if got, want := nvml(t, dir, "init", "processes,0,9")[1], fmt.Sprintf("0 1 %d:%d", parent,
			h100Context+2*mib); got != want {
			t.Errorf("%s: NVML lists %q, want %q", driver, got, want)
		}
		if got := has(t, dir, child); !slices.Equal(got, []bool{false, true, false}) {
			t.Errorf("%s: the child has %v of nvidiactl, nvidia0 and nvidia1 open", driver, got)
		}
		end()
		if all := listed(t, dir); len(all) != 0 {
			t.Errorf("%s: after the end of the last that has the files: %+v", driver, all)
		}
	}
}

// TestCUDAFilesCloseAtExec has the child execute another program: the driver's files are not for that.
func TestCUDAFilesCloseAtExec(t *testing.T) {
	dir := node(t, "h100x8", "r615")
	_, child, _ := orphan(t, dir, "orphan-exec")
	eventually.True(t, "memory back", func() bool { return len(listed(t, dir)) == 0 })
	if got := has(t, dir, child); slices.Contains(got, true) {
		t.Errorf("the child has %v of nvidiactl, nvidia0 and nvidia1 open", got)
	}
}

// TestDeviceFilesOfClients looks at the files of a process that uses a GPU, and of one that asks about it.
func TestDeviceFilesOfClients(t *testing.T) {
	dir := node(t, "h100x8", "r615")
	cmd, _, _ := command(t, dir, []string{"CUDA_VISIBLE_DEVICES=1"}, "gpuload", "--alloc", "1GiB", "--hold", "10m")
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "a process with 1 GiB", func() bool {
		return holders(t, dir)[cmd.Process.Pid] == gib+
			h100Context
	})
	if got := has(t, dir, cmd.Process.Pid); !slices.Equal(got, []bool{false, false, true}) {
		t.Errorf("it has %v of nvidiactl, nvidia0 and nvidia1 open", got)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if all := listed(t, dir); len(all) != 0 {
		t.Errorf("after its end: %+v", all)
	}
}

// inOwnPIDs runs a test in a new pid namespace, as its first process, and with a /proc that shows it. If it returns
// false, another process has run the test, and its outcome is this test's.
func inOwnPIDs(t *testing.T) bool {
	t.Helper()
	const marker = "GPUSIM_TEST_OWN_PIDS"
	if os.Getenv(marker) != "" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a pid namespace")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), marker+"=1", builtVar+"="+built)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("in its own pid namespace: %v\n%s", err, out)
	}
	return false
}

// TestPIDOfAnEndedProcessIsGivenAgain has the number of a process that has ended, and is listed, given to another one.
func TestPIDOfAnEndedProcessIsGivenAgain(t *testing.T) {
	if !inOwnPIDs(t) {
		return
	}
	dir := node(t, "h100x8", "r580")
	parent, _, end := orphan(t, dir, "orphan")
	as := func(name string, args ...string) (started uint64, stop func()) {
		cmd, _, errout := command(t, dir, []string{"CUDA_VISIBLE_DEVICES=0", "PATH=" + os.Getenv("PATH")},
			"check/setpid", append([]string{strconv.Itoa(parent), name}, args...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var h *process.Handle
		eventually.True(t, "a process with the number", func() bool {
			var err error
			h, err = process.Open(parent)
			return err == nil
		})
		return h.StartTime(), func() {
			if err := h.Signal(unix.SIGKILL); err != nil {
				t.Errorf("%v: %s", err, errout)
			}
			h.Close()
			_ = cmd.Wait() // it was killed
		}
	}
	list := func() string { return nvml(t, dir, "init", "processes,0,9")[1] }
	ended := fmt.Sprintf("0 1 %d:%d", parent, h100Context+2*mib)

	// One that has nothing to do with the GPU is named all the same, and has none of its files.
	_, stop := as("sleep", "1000")
	if got := list(); got != ended {
		t.Errorf("with an innocent successor NVML lists %q, want %q", got, ended)
	}
	if got := has(t, dir, parent); slices.Contains(got, true) {
		t.Errorf("the successor has %v open", got)
	}
	stop()

	// One that uses the GPU, too, is one with it in the driver's list.
	started, stop := as(filepath.Join(built, "gpuload"), "--alloc", "1GiB", "--hold", "10m")
	both := fmt.Sprintf("0 1 %d:%d", parent, h100Context+2*mib+h100Context+gib)
	eventually.True(t, "one entry for both", func() bool { return list() == both })
	all := listed(t, dir)
	if len(all) != 2 || !all[0].Ended || all[1].Ended || all[0].PID != parent || all[1].PID != parent ||
		all[1].Start != started ||
		uint64(all[0].Bytes) != h100Context+2*mib || uint64(all[1].Bytes) != h100Context+gib {
		t.Errorf("the truth is %+v", all)
	}
	stop()
	if got := list(); got != ended {
		t.Errorf("after the successor NVML lists %q, want %q", got, ended)
	}
	end()
	if got := list(); got != "0 0" {
		t.Errorf("after the last that has the files NVML lists %q", got)
	}
}
