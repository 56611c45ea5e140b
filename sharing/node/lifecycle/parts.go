// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/checkpoint"
	"github.com/kerf-gpu/kerf/sharing/node/entry"
	"github.com/kerf-gpu/kerf/sharing/node/health"
	"github.com/kerf-gpu/kerf/sharing/node/mode"
	"github.com/kerf-gpu/kerf/sharing/node/place"
	"github.com/kerf-gpu/kerf/sharing/node/store"
	"github.com/kerf-gpu/kerf/sharing/node/unplaced"
	"github.com/kerf-gpu/kerf/sharing/node/work"
)

// Peer is the process that calls, as the kernel tells it.
type Peer struct {
	PID int
	// Start is when the process started, in clock ticks since boot: with PID it names one process for good.
	Start uint64
	UID   uint32
	GID   uint32
}

// Grants are all parts of the life cycle.
type Grants struct {
	*Core
	*Caps
	*Releaser
	*Activator
	*Resizer
	*Finder
	*Devices
	*Reserver
	*Injector
}

// New makes the parts. The exported fields of c are set. Set the exported fields of the parts before anything else is
// called.
func New(c Core) *Grants {
	c.queue, c.verifyNow = work.New[ledger.GrantID](), make(chan struct{}, 1)
	caps := &Caps{&c, newGate(gateWidth, gateTime)}
	releaser := &Releaser{&c, caps}
	finder := &Finder{&c, caps}
	reserver := &Reserver{Core: &c}
	return &Grants{
		Reserver: reserver, Injector: &Injector{&c, reserver},
		Core: &c, Caps: caps, Releaser: releaser, Activator: &Activator{&c, caps, releaser},
		Resizer: &Resizer{Core: &c}, Finder: finder,
		Devices: &Devices{Core: &c, caps: caps, finder: finder, Health: health.NewTable()},
	}
}

// Caps sets the limits of cgroups, and verifies them.
type Caps struct {
	*Core
	// gate is where caps are put on cgroups.
	gate *gate
}

// Releaser ends attachments and grants.
type Releaser struct {
	*Core
	caps *Caps
}

// Activator sets and verifies the caps of containers and processes.
type Activator struct {
	*Core
	caps     *Caps
	releaser *Releaser
}

// Recaller takes back burst memory.
type Recaller interface {
	// Recall takes memory back that is missing, and then calls book.
	Recall(ctx context.Context, missing func() map[sharing.GPURef]sharing.Bytes, book func() error) error
}

// Resizer changes the memory of grants, guaranteed and burst.
type Resizer struct {
	*Core
	Recaller Recaller
}

// Settings are the applied config, and the pool of the node.
type Settings interface {
	Config() config.Config
	Pool() config.Pool
}

// BurstMemory lend free memory to grants beyond their guarantee.
type BurstMemory interface {
	// Grant calls try, if need be again after memory that is missing was taken back.
	Reserve(ctx context.Context, try func() error,
		missing func(inUse map[sharing.GPURef]bool) map[sharing.GPURef]sharing.Bytes) error
}

// Reserver reserves resources for pods and processes, and gives them back.
type Reserver struct {
	*Core
	Settings Settings
	// Place returns the node as a placement sees it, with these grants and GPUs.
	Place       func(store.Reader) *place.Node
	Modes       *mode.Switcher
	BurstMemory BurstMemory
	// Unplaced are the pods without grants.
	Unplaced *unplaced.Pods
	// NewID makes a grant's id; two calls never give the same.
	NewID func() string
	// NoMPSForPods says why MPS can hold no container of a pod on this machine; empty: it can.
	NoMPSForPods string
}

// Injector gives containers what their grants have.
type Injector struct {
	*Core
	reserver *Reserver
}

// Finder finds grants again.
type Finder struct {
	*Core
	caps *Caps
}

// Devices takes in the GPUs that the driver shows, and their health.
type Devices struct {
	*Core
	caps   *Caps
	finder *Finder
	// Health is what is known of the health of GPUs and MIG instances.
	Health *health.Table
	// Allocatable returns the GPUs with the amounts that can be granted of them.
	Allocatable func([]sharing.GPU) []sharing.GPU
	// Took receives a new inventory, with what each GPU can give. It is called inside the store.
	Took func([]sharing.GPU, map[sharing.GPURef]choice.Report)
}

// Failpoints are the names of the points at which a crash test may stop the life cycle.
func Failpoints() []string {
	points := append(checkpoint.Failpoints(), "arm-after-mkdir", "arm-after-record", "arm-after-caps")
	for _, step := range entry.Steps() {
		points = append(points, activatePoint(step))
	}
	return append(points,
		"end-after-clear", "end-after-rmdir",
		"limit-after-book", "limit-after-cap", "limit-after-record",
		"lend-after-book", "lend-after-cap",
		"mig-after-claim", "mig-after-cut", "inject-after-record", "hook-after-record", "hook-after-caps",
		"hook-after-arm",
	)
}

// Deadlines and intervals.
const (
	// CapDeadline bounds what is done with the caps of one grant.
	CapDeadline    = 20 * time.Second
	sampleDeadline = 2 * time.Second
	// busyPatience is how long Inject waits for an attachment that is ending; NRI's answer has 2 s in all.
	busyPatience = time.Second
	// capSlack is how far an enforced limit may be below the request, since a driver rounds down to its pages.
	capSlack = 2 * sharing.MiB
	// listDeadline bounds one reading of the process list of a GPU.
	listDeadline = 500 * time.Millisecond
	// reservationsEvery is how often grants without an attachment are looked at.
	reservationsEvery = 500 * time.Millisecond
	// againEvery is when an attachment that is over and could not end is looked at again.
	againEvery = 500 * time.Millisecond
	// reconcileGap is the least time between two runs.
	reconcileGap = 20 * time.Millisecond
	// verifyEvery is how often every cap is read back from the driver.
	verifyEvery = 10 * time.Second
)
