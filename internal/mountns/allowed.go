// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns

import "golang.org/x/sys/unix"

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
