// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"log/slog"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/failpoint"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/lists"
	"github.com/kerf-gpu/kerf/sharing/node/contextprobe"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
)

// Host is the machine that a Runtime works on.
type Host struct {
	Cgroups cgroup.Hierarchy // cgroup v2
	// Parent is the directory below Cgroups for the cgroups of grants, such as "kerf/3f2a"; this runtime alone uses it.
	Parent string
	BootID string // the kernel's
	// DevRoot is the directory that holds dev/nvidiaN, "/" on a real node.
	DevRoot string
	// CapsRoot holds the host's dev/nvidia-caps and proc/driver/nvidia/capabilities; empty for DevRoot.
	CapsRoot string
	// OwnerOf returns, at once, the user who has a UID or subordinate UID, for quotas. Nil: the UID itself.
	OwnerOf func(uid uint32) uint32
	Kernel  lists.Kernel // nil: that of this machine
}

// Options are what a Runtime is made of. All fields are required unless said otherwise.
type Options struct {
	Host

	Log *slog.Logger
	// RecordPath is the file of the record; its directory exists.
	RecordPath string
	// NewID makes a grant's id; two calls never give the same.
	NewID func() string
	// Version is the agent's own version, and GPUSettings its --gpu-settings, for status.
	Version, GPUSettings string
	// Config and Pool are the configuration applied at the start. Runtime.Settings changes them.
	Config config.Config
	Pool   config.Pool
	// MPS is nil where there is none.
	MPS backend.Backend
	// NoMPSForPods says why MPS can hold no container of a pod on this machine; empty: it can.
	NoMPSForPods string
	// Observer receives what happens, for metrics.
	Observer Observer
	// Client is the zero value where there is no library to preload.
	Client libkerf.Paths
	// Contexts are the measured sizes of contexts; nil: none is known.
	Contexts *contextprobe.Sizes
	// Audit takes the entries of the audit log, and returns at once; nil where none is kept.
	Audit notify.Audit
	// Failpoints is nil but in crash tests.
	Failpoints *failpoint.Set
}

// Observer receives what the runtime did. The runtime may hold its lock, and several goroutines may call at once. So
// the methods return at once and do not call the runtime.
type Observer interface {
	// Reserved tells of one grant; err is nil when it was held.
	Reserved(err error)
	// Placed reports that a pod's containers got their grants, and how long after the pod's first try on this node. The
	// reason of the last rejection is why; nil if there was none.
	Placed(namespace, profile string, why error, waited time.Duration)
	// Activated tells of one activate and how long it took; err is nil when the attachment was taken.
	Activated(took time.Duration, err error)
	// Injected reports how long it took to find or make a container's grant and to write it to disk. A nil err means
	// that the container got its grant.
	Injected(took time.Duration, err error)
	// Ended tells that an attachment ended.
	Ended()
	// Recovered tells that an attachment was found again at a restart.
	Recovered()
	// CapRestored tells that a cap was gone from the driver and was put back.
	CapRestored()
	// Limited reports one change of a grant's memory; err is nil if the new cap is set.
	Limited(err error)
	// Watched tells of one sample of the reactive backend: its cost, and how many samples were missed before it because
	// it was late.
	Watched(took time.Duration, missed int)
	// OverCap tells that such an attachment was found over its cap: for how long that may have been so at most, and by
	// how much.
	OverCap(delay time.Duration, by sharing.Bytes)
	// Killed tells that a process was killed (reason "over_cap", "unmanaged", "escaped" or "gpu_fault"); with an error
	// it was to be, and was spared.
	Killed(reason string, err error)
	// Evicted tells that a pod was evicted (reason "over_cap", "escaped", "gpu_fault" or "idle"); with an error that
	// was refused.
	Evicted(reason string, err error)
	// MIGCreated tells of one MIG instance that a grant asked for; warm is true where it was there already.
	MIGCreated(warm bool, took time.Duration, err error)
	// MIGRefused reports that a request got no MIG instance. reason is that of the GPU that came nearest to it.
	MIGRefused(reason string)
	// MIGModeSwitched tells of one change of a GPU's MIG mode that demand asked for; err is nil when it was made.
	MIGModeSwitched(on bool, took time.Duration, err error)
	// Uncounted tells that a process was found that uses a GPU without the library that is to hold its attachment.
	Uncounted()
}

// Deadlines of what the runtime does on behalf of a call.
const (
	// watchPoll is how often the watch checks a cgroup without an inotify event.
	watchPoll = 500 * time.Millisecond
)
