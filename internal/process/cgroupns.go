// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// hostCgroupNS is the cgroup namespace of the machine's first process, as a process in the host's pid
// namespace sees it.
const hostCgroupNS = "/proc/1/ns/cgroup"

// JoinHostCgroups moves the calling thread into the cgroup namespace of the machine's first process, so that
// paths in /proc/PID/cgroup and in mountinfo are the machine's own: a container's cgroup namespace shows
// them from its own place in the tree, and Kubernetes has no field to go without it. It reports whether the
// thread moved; the caller then locks it and executes its program again, since threads that are running
// already stay where they are.
//
// The error wraps ErrDenied without CAP_SYS_ADMIN and ErrUnsupported without the host's pid namespace.
func JoinHostCgroups() (moved bool, err error) {
	if os.Getpid() == 1 {
		return false, fmt.Errorf("this process is the first of its pid namespace, so the machine's processes cannot be seen: run the pod with hostPID: true: %w", sharing.ErrUnsupported)
	}
	host, err := os.Open(hostCgroupNS)
	if err != nil {
		return false, fmt.Errorf("open the host's cgroup namespace: %w (%w)", err, sharing.ErrDenied)
	}
	defer host.Close()
	same, err := sameFile(hostCgroupNS, "/proc/self/ns/cgroup")
	if err != nil || same {
		return false, err
	}
	if err := unix.Setns(int(host.Fd()), unix.CLONE_NEWCGROUP); err != nil {
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w: give the container CAP_SYS_ADMIN (%w)", err, sharing.ErrDenied)
		}
		return false, fmt.Errorf("join the host's cgroup namespace: %w", err)
	}
	return true, nil
}

func sameFile(a, b string) (bool, error) {
	x, err := os.Stat(a)
	if err != nil {
		return false, fmt.Errorf("look at namespace: %w", err)
	}
	y, err := os.Stat(b)
	if err != nil {
		return false, fmt.Errorf("look at namespace: %w", err)
	}
	return os.SameFile(x, y), nil
}

// RestartInHostCgroups makes this program run in the host's cgroup namespace: again starts the program again in its place if
// it must. again returns only an error.
func RestartInHostCgroups(log *slog.Logger, again func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	moved, err := JoinHostCgroups()
	if err != nil || !moved {
		return err
	}
	log.Info("starting again in the host's cgroup namespace")
	return fmt.Errorf("start again in the host's cgroup namespace: %w", again())
}
