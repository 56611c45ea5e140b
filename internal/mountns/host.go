// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// InHost calls do on a thread in the mount namespace of the machine's first process. It returns the error of do.
// Another error wraps sharing.ErrDenied without CAP_SYS_ADMIN, CAP_SYS_CHROOT and the right to read that namespace, and
// sharing.ErrUnavailable for everything else. In a container it needs the host's PID namespace.
func InHost(do func() error) error {
	host, same, err := hostMounts()
	if err != nil {
		return wrap("find the host's mount namespace", err)
	}
	defer host.Close()
	if same {
		return do()
	}
	return within(host, do)
}

// within calls do on a thread in an open mount namespace.
func within(namespace *os.File, do func() error) error {
	return OnThread(func() error {
		// The kernel moves only a thread that shares its root and working directory with no other.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return wrap("leave the process's working directory", err)
		}
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS); err != nil {
			return wrap("join the mount namespace (needs CAP_SYS_ADMIN and CAP_SYS_CHROOT)", err)
		}
		return do()
	})
}

// IsHost reports whether this process is in the mount namespace that InHost uses: the machine and its container
// runtimes then see what it mounts. Errors are those of InHost.
func IsHost() (bool, error) {
	host, same, err := hostMounts()
	if err != nil {
		return false, wrap("find the host's mount namespace", err)
	}
	return same, host.Close()
}

// hostMounts opens the host's mount namespace, and reports whether it is this process's own.
func hostMounts() (f *os.File, same bool, err error) {
	f, err = os.Open("/proc/1/ns/mnt")
	if errors.Is(err, fs.ErrPermission) && kernelThread(kthreadd) {
		// Kernel threads never leave the initial mount namespace.
		f, err = os.Open(fmt.Sprintf("/proc/%d/ns/mnt", kthreadd))
	}
	if err != nil {
		return nil, false, err
	}
	theirs, err := f.Stat()
	if err == nil {
		var own os.FileInfo
		if own, err = os.Stat("/proc/self/ns/mnt"); err == nil {
			return f, os.SameFile(theirs, own), nil
		}
	}
	return nil, false, errors.Join(err, f.Close())
}

// kthreadd is the PID of the first kernel thread in the initial PID namespace; elsewhere another process may have it.
const kthreadd = 2

// kernelThread reports whether the kernel marks the process as one of its threads, which no program can make it do.
func kernelThread(pid int) bool {
	const flagsField, isKernelThread = 6, 0x00200000 // of what follows the name; PF_KTHREAD
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) <= flagsField {
		return false
	}
	flags, err := strconv.ParseUint(fields[flagsField], 10, 64)
	return err == nil && flags&isKernelThread != 0
}

// Allowed tells whether the calling thread has CAP_SYS_ADMIN in effect, without which Mask cannot work. A
// kernel that does not answer counts as allowed, so that Mask is tried and its refusal is seen.
func Allowed() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	// Version 3 has two words of capabilities; the kernel writes both.
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return true
	}
	return data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// OnThread calls do on a thread that ends with the call, so that no other goroutine inherits the namespaces that do
// enters. It returns the error of do.
func OnThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// /proc/self describes the first thread, and that thread never ends: take another one.
			defer runtime.UnlockOSThread()
			done <- OnThread(do)
			return
		}
		done <- do() // a thread that is still locked ends with its goroutine
	}()
	return <-done
}
