// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import "github.com/kerf-gpu/kerf/sharing"

// The layout of lib/region.h; a test compares the two.
const (
	limitsMagic = 0x334d494c4652454b // "KERFLIM3"
	usageMagic  = 0x334553554652454b // "KERFUSE3"
	// MaxDevices is how many GPUs one region can have.
	MaxDevices = 16
	// MaxProcesses is how many processes can count in one region at a time.
	MaxProcesses = 1024

	// UnknownContext stands for the size of a context that is not known: see SetContext.
	UnknownContext = sharing.Bytes(1<<64 - 1)

	pidBits = 22
)

type limitEntry struct {
	uuid                            [16]byte
	limit, overhead, context, moves uint64
}

type limitsPage struct {
	magic, devices uint64
	device         [MaxDevices]limitEntry
	percent        [MaxDevices]uint64
	rejectsManaged uint64
	bound, least   [MaxDevices]uint64
}

type slot struct {
	owner, spare, begun, ended uint64
	held                       [MaxDevices]uint64
	space, making              uint64
	waiting                    [MaxDevices]uint64
	_                          [2]uint64
}

type total struct {
	bytes                                    uint64
	budget                                   int64
	charged, refills, launches, past, waited uint64
	ran, refused                             uint64
	_                                        [7]uint64
}

type usagePage struct {
	magic, rejected uint64
	_               [6]uint64
	total           [MaxDevices]total
	slot            [MaxProcesses]slot
	// managed is the part of each slot's held that is managed memory.
	managed [MaxProcesses][MaxDevices]uint64
}

// named is the process that a slot names.
func named(owner, space uint64) Process {
	return Process{PID: int(owner & (1<<pidBits - 1)), Start: owner >> pidBits, Space: space}
}

// owner is how a slot names a process: its pid and start time in its own pid namespace.
func owner(pid int, start uint64) uint64 {
	return start<<pidBits | uint64(pid)&(1<<pidBits-1) //nolint:gosec // a pid is positive
}
