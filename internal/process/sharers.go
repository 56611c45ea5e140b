// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// What kcmp compares: the address space, and the table of descriptors, of two threads.
const (
	kcmpMemory = 1
	kcmpFiles  = 2
)

// SharingProcesses lists the processes that are not in pids and share an address space or a table of descriptors with a
// process in pids, sorted. Such a process was made by clone(CLONE_VM) or clone(CLONE_FILES) without CLONE_THREAD, or is
// a vfork child that has not executed its program yet. It acts on the memory or files of the other like a thread, and
// can be in another cgroup.
//
// SharingProcesses skips a process that the kernel does not let the caller compare, such as one under a security
// module's rule.
//
// A process that replaces itself by another while SharingProcesses looks can be missed. Errors: sharing.ErrUnsupported
// (kernel without kcmp), sharing.ErrDenied (not even pids can be compared: no CAP_SYS_PTRACE), sharing.ErrUnavailable.
func SharingProcesses(pids []int) ([]int, error) {
	var threads []int
	for _, pid := range pids {
		tids, err := ownTables(pid)
		if err != nil {
			return nil, fmt.Errorf("compare threads of process %d: %w", pid, err)
		}
		threads = append(threads, tids...)
	}
	var found []int
	err := eachProcess(func(other int) error {
		if slices.Contains(pids, other) {
			return nil
		}
		shares, err := sharesWithAny(other, threads)
		if shares {
			found = append(found, other)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(found)
	return found, nil
}

// ownTables is one live thread for each table of descriptors that the process has: one, but for threads that unshared
// theirs. A thread that has ended has neither memory nor files, like a kernel thread.
func ownTables(pid int) ([]int, error) {
	names, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*")
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the process
	}
	var own []int
	for _, name := range names {
		tid, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		if exe, err := os.Readlink(name + "/exe"); err != nil || exe == "" {
			continue // it has ended: no address space, no program
		}
		if _, err := kcmp(tid, tid, kcmpMemory); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(own, func(o int) bool {
			same, err := kcmp(o, tid, kcmpFiles)
			return err == nil &&
				same
		}) {
			own = append(own, tid)
		}
	}
	return own, nil
}

// eachProcess calls do with each process of this pid namespace, in the order of pids. It reads the list as it goes, so
// that a process which is made meanwhile, and has a higher pid, is met too.
func eachProcess(do func(pid int) error) error {
	proc, err := os.Open("/proc")
	if err != nil {
		return fmt.Errorf("list processes: %w (%w)", err, classifyFile(err))
	}
	defer proc.Close()
	for {
		names, err := proc.Readdirnames(64)
		for _, name := range names {
			pid, notOne := strconv.Atoi(name)
			if notOne != nil {
				continue
			}
			if err := do(pid); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list processes: %w (%w)", err, classifyFile(err))
		}
	}
}

func sharesWithAny(pid int, threads []int) (bool, error) {
	for _, tid := range threads {
		for _, what := range []int{kcmpMemory, kcmpFiles} {
			same, err := kcmp(tid, pid, what)
			if same || err != nil && !errors.Is(err, sharing.ErrDenied) {
				return same, err
			}
		}
	}
	return false, nil
}

// kcmp reports whether two threads have the same object. A thread that has ended shares nothing.
func kcmp(a, b, what int) (bool, error) {
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), uintptr(what), 0, 0, 0)
	switch {
	case errno == 0:
		return order == 0, nil
	case errors.Is(errno, unix.ESRCH):
		return false, nil
	case errors.Is(errno, unix.ENOSYS):
		return false, fmt.Errorf("compare processes: %w: this kernel has no CONFIG_KCMP (%w)", errno,
			sharing.ErrUnsupported)
	}
	return false, fmt.Errorf("compare processes %d and %d: %w (%w)", a, b, errno, classifyFile(errno))
}
