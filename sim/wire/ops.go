// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math"
	"strconv"
)

// Limits of a packet, as in protocol.h.
const (
	// Version is the protocol's version; a library of another version is refused.
	Version = 1
	// MaxText is the longest text of a packet in bytes.
	MaxText = 4096
	// MaxProcesses is how many processes a list has at most: NV2080_CTRL_GPU_GET_PIDS_MAX_COUNT of NVIDIA's open kernel
	// modules.
	MaxProcesses = 950
	// MaxVals is the largest number of values in a response.
	MaxVals = 6000
	// NArgs is the number of arguments that every request carries.
	NArgs = 6
	// Unknown stands for a value that the driver cannot tell.
	Unknown uint64 = math.MaxUint64
	// MIGVals is how many values OpMIGInstances has of each MIG device.
	MIGVals = 9
	// ComputeShift is by how many bits a compute instance's id stands above its GPU instance's in the number of a MIG
	// device.
	ComputeShift = 8
	// NoInstance is the GPU or compute instance id of what runs on no MIG instance.
	NoInstance uint64 = 0xFFFFFFFF
)

// Op is an operation's number.
type Op uint32

// The operations: system ones on nvidiactl, all others on nvidiaN. protocol.h says what each takes and
// answers.
const (
	OpSystem       Op = 1
	OpWaitEvent    Op = 2
	OpGPUInfo      Op = 16
	OpMemory       Op = 17
	OpUtilization  Op = 18
	OpProcesses    Op = 19
	OpTopology     Op = 20
	OpNVLink       Op = 21
	OpMIGMode      Op = 22
	OpMIGProfile   Op = 23
	OpMIGInstances Op = 24
	OpSetLimit     Op = 25
	OpGetLimit     Op = 26
	OpRecovery     Op = 27
	OpProcessUtil  Op = 28
	OpTelemetry    Op = 29
	OpComputeMode  Op = 30
	OpMIGSet       Op = 31
	OpPowerLimit   Op = 32
	OpInstanceUtil Op = 33
	OpGICreate     Op = 40
	OpGIDestroy    Op = 41
	OpCICreate     Op = 42
	OpCIDestroy    Op = 43
	OpCtxCreate    Op = 48
	OpCtxDestroy   Op = 49
	OpAlloc        Op = 50
	OpFree         Op = 51
	OpLaunch       Op = 52
	OpReside       Op = 53
	OpImport       Op = 54
	OpMPSServe     Op = 55
	OpMPSJoin      Op = 56
	OpCheckpoint   Op = 57
	OpExport       Op = 58
	OpClock        Op = 59
	OpCopy         Op = 60
	OpMPSState     Op = 61
)

// Checkpoint is what OpCheckpoint does to a process.
type Checkpoint uint64

// The steps; the first only reads the state.
const (
	CheckpointState   Checkpoint = 0
	CheckpointLock    Checkpoint = 1 // its calls wait
	CheckpointSave    Checkpoint = 2 // its memory goes to the host
	CheckpointRestore Checkpoint = 3 // and comes back
	CheckpointUnlock  Checkpoint = 4
)

// Kind says by which interface memory was allocated.
type Kind uint64

// The kinds of allocation.
const (
	KindLinear  Kind = 1 // lives in a context
	KindAsync   Kind = 2 // a pool's, which needs no context
	KindVMM     Kind = 3 // needs no context either
	KindManaged Kind = 4 // addresses alone: memory comes with OpReside
)

// List says in which of NVML's lists of processes one stands.
type List uint64

// The lists.
const (
	ListCompute  List = 0
	ListGraphics List = 1
	ListMPS      List = 2
)

// Status is an answer's outcome. Every Status but OK is an error, so that code inside the daemon can return
// it as one; OK is never returned as an error.
type Status int32

// The statuses, as in protocol.h.
const (
	OK           Status = 0
	Invalid      Status = 1
	NotSupported Status = 2
	NoPermission Status = 3
	NotFound     Status = 4
	OutOfMemory  Status = 5
	Lost         Status = 6
	InUse        Status = 7
	Insufficient Status = 8
	Timeout      Status = 9
	UnknownError Status = 10
	InvalidLimit Status = 11
	BadVersion   Status = 12
	ServerEnded  Status = 13
	Locked       Status = 14
	// CannotOpen: a path that the caller named cannot be opened.
	CannotOpen Status = 15
	// BadAddress and FailedLaunch: work of the process went wrong, and its contexts are unusable.
	BadAddress   Status = 16
	FailedLaunch Status = 17
	// NotReady: the MPS server waits for the end of the clients that a fault has ended, and takes no new ones.
	NotReady Status = 18
)

// Error returns the status in words.
func (s Status) Error() string {
	switch s {
	case OK:
		return "ok"
	case Invalid:
		return "invalid argument"
	case NotSupported:
		return "not supported"
	case NoPermission:
		return "no permission"
	case NotFound:
		return "not found"
	case OutOfMemory:
		return "out of memory"
	case Lost:
		return "gpu is lost"
	case InUse:
		return "in use"
	case Insufficient:
		return "insufficient resources"
	case Timeout:
		return "timeout"
	case UnknownError:
		return "unknown error"
	case InvalidLimit:
		return "invalid limit"
	case BadVersion:
		return "library and daemon are of different builds"
	case ServerEnded:
		return "mps server is gone"
	case Locked:
		return "process is locked"
	case CannotOpen:
		return "path cannot be opened"
	case BadAddress:
		return "work has met a bad address"
	case FailedLaunch:
		return "work has failed"
	case NotReady:
		return "mps server recovers from a fault"
	}
	return "status " + strconv.Itoa(int(s))
}
