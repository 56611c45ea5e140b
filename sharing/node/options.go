// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"log/slog"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/failpoint"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/lists"
	"github.com/kerf-gpu/kerf/sharing/node/checkpoint"
	"github.com/kerf-gpu/kerf/sharing/node/contextprobe"
	"github.com/kerf-gpu/kerf/sharing/node/entry"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
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
	// NewID makes a claim's id; two calls never give the same.
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
	// Observer is told what happens, for metrics.
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

// Observer is told what the runtime did. Its methods may be called with the runtime's lock held, and at
// once from several goroutines: they return at once and call nothing back.
type Observer interface {
	// Claimed tells of one claim; err is nil when it was held.
	Claimed(err error)
	// Placed tells that a pod's containers got their claims, how long after its first try on this node, and why the last
	// try before was refused; nil where none was.
	Placed(namespace, profile string, why error, waited time.Duration)
	// Armed tells of one arm and how long it took; err is nil when the lease was taken.
	Armed(took time.Duration, err error)
	// Injected tells how long it took to find or make a container's claim and to note it on disk; err is nil
	// when the container got its grant.
	Injected(took time.Duration, err error)
	// Ended tells that a lease ended.
	Ended()
	// Recovered tells that a lease was found again at a restart.
	Recovered()
	// CapRestored tells that a cap was gone from the driver and was put back.
	CapRestored()
	// Limited tells of one change of a grant's memory; err is nil when it is in force.
	Limited(err error)
	// Watched tells of one sample of the reactive backend: its cost, and how many samples were missed before it because it
	// was late.
	Watched(took time.Duration, missed int)
	// OverCap tells that such a lease was found over its cap: for how long that may have been so at most, and by
	// how much.
	OverCap(delay time.Duration, by sharing.Bytes)
	// Killed tells that a process was killed (reason "over_cap", "stranger", "escaped" or "gpu_fault"); with an error it was to be, and
	// was spared.
	Killed(reason string, err error)
	// Evicted tells that a pod was evicted (reason "over_cap", "escaped", "gpu_fault" or "idle"); with an error that was refused.
	Evicted(reason string, err error)
	// MIGCut tells of one MIG instance that a claim asked for; warm is true where it was there already.
	MIGCut(warm bool, took time.Duration, err error)
	// MIGRefused tells that nobody got the MIG instance that was asked for, and why in a word: that of the GPU which came nearest to it.
	MIGRefused(reason string)
	// MIGTurned tells of one change of a GPU's MIG mode that demand asked for; err is nil when it was made.
	MIGTurned(on bool, took time.Duration, err error)
	// Uncounted tells that a process was found that uses a GPU without the library that is to hold its lease.
	Uncounted()
}

// Driver is what the runtime reads from the driver.
type Driver interface {
	// Version is the driver's version string.
	Version() string
	// Sample reads one GPU's use, without its processes. An error wraps sharing.ErrLost or sharing.ErrUnavailable.
	Sample(ctx context.Context, gpu sharing.GPUID) (Sample, error)
	// ProcessTime is what part of the time since then each process used of one GPU, as far as the driver's samples tell. Errors are
	// those of Sample, and sharing.ErrUnsupported where the driver does not tell.
	ProcessTime(ctx context.Context, gpu sharing.GPUID, since time.Time) (sharing.TimeUse, error)
	// Power is what the whole GPU takes now, in watts. Errors are those of Sample, and sharing.ErrUnsupported.
	Power(ctx context.Context, gpu sharing.GPUID) (watts float64, err error)
	// Processes lists those that hold memory of one GPU, each once. Errors are those of Sample.
	Processes(ctx context.Context, gpu sharing.GPUID) ([]ProcessUse, error)
}

// Sample is one GPU's usage at one moment.
type Sample = observe.Reading

// ProcessUse is one process on one GPU. Known is false when the driver does not tell its memory.
type ProcessUse = lists.Use

// Capper puts caps in force. All methods honour the context's deadline.
type Capper interface {
	// Apply limits the cgroup to each fragment's memory on the fragment's GPU, and to the least on every
	// GPU of others, and reads each back. On error nothing is left in force. Whole fragments get no limit.
	Apply(ctx context.Context, dir string, own []sharing.Fragment, others []sharing.GPUID) error
	// Renew is Apply for a cgroup whose processes may run: on error all that is in force stays.
	Renew(ctx context.Context, dir string, own []sharing.Fragment, others []sharing.GPUID) error
	// Read gives the limit in force and its use. ErrNotFound when the cgroup has none on that GPU.
	Read(ctx context.Context, dir string, gpu sharing.GPUID) (limit, used sharing.Bytes, err error)
	// Clear takes every limit off; a cgroup or GPU that is gone is no error.
	Clear(ctx context.Context, dir string, gpus []sharing.GPUID) error
	// Least is the limit that Apply gives to others.
	Least() sharing.Bytes
}

// Attachment is a driver that answers, with what was found on it.
type Attachment struct {
	Driver Driver
	// Caps is nil when the driver cannot limit memory.
	Caps Capper
	// GPUs are as the driver shows them. The settings say what can be granted of each.
	GPUs []sharing.GPU
	// Levels has an entry for each GPU: what holds shares of it, and what does not and why.
	Levels map[sharing.GPUID]choice.Report
	// LeftOut are the devices that were not taken into the inventory, one sentence each.
	LeftOut []string
}

// Peer is the process that calls, as the kernel tells it.
type Peer struct {
	PID int
	// Start is when the process started, in clock ticks since boot: with PID it names one process for good.
	Start uint64
	UID   uint32
	GID   uint32
}

// Failpoints are the names of the points at which a crash test may stop the runtime.
func Failpoints() []string {
	points := append(checkpoint.Failpoints(), "arm-after-mkdir", "arm-after-record", "arm-after-caps")
	for _, step := range entry.Steps() {
		points = append(points, armPoint(step))
	}
	return append(points,
		"end-after-clear", "end-after-rmdir",
		"limit-after-book", "limit-after-cap", "limit-after-record",
		"lend-after-book", "lend-after-cap",
		"mig-after-claim", "mig-after-cut", "inject-after-record", "hook-after-record", "hook-after-caps", "hook-after-arm",
	)
}

// Deadlines of what the runtime does on behalf of a call.
const (
	capDeadline    = 20 * time.Second
	sampleDeadline = 2 * time.Second
	// busyPatience is how long Inject waits for a lease that is ending; NRI's answer has 2 s in all. busyPoll is how
	// often it looks.
	busyPatience = time.Second
	busyPoll     = 5 * time.Millisecond
	// capSlack is how far a limit in force may be below what was asked, since a driver rounds down to its pages.
	capSlack = 2 * sharing.MiB
	// watchDeadline bounds one reading of the process list of a GPU.
	watchDeadline = 500 * time.Millisecond
	// reconcileEvery is how often leases and claims are looked at even if no event came.
	reconcileEvery = 500 * time.Millisecond
	// reconcileGap is the least time between two looks.
	reconcileGap = 20 * time.Millisecond
	// watchPoll is how often the watch looks at a cgroup of which inotify told nothing.
	watchPoll = time.Second
	// verifyEvery is how often every cap is read back from the driver.
	verifyEvery = 10 * time.Second
)
