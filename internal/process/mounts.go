// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import "strconv"

// HostMounts reports whether this process shares its mounts with the machine's first process: what it mounts, the
// machine and its container runtimes then see. A process in a container does not, nor a service with mounts of its own.
// It is no answer for the first process of a container, which sees no other: JoinHostCgroups refuses that.
func HostMounts() (bool, error) { return sharesMounts(1) }

func sharesMounts(pid int) (bool, error) {
	return sameFile("/proc/"+strconv.Itoa(pid)+"/ns/mnt", "/proc/self/ns/mnt")
}
