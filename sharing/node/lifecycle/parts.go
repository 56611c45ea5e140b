// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/checkpoint"
	"github.com/kerf-gpu/kerf/sharing/node/entry"
	"github.com/kerf-gpu/kerf/sharing/node/health"
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
}

// New makes the parts. The exported fields of c are set; mu guards l. Set Recaller, Allocatable
// and Took before anything else is called.
func New(c Core, mu sync.Locker, l *ledger.Ledger) *Grants {
	c.mu, c.ledger, c.kick, c.verifyNow = mu, l, make(chan struct{}, 1), make(chan struct{}, 1)
	caps := &Caps{&c, newGate(gateWidth, gateTime)}
	releaser := &Releaser{&c, caps}
	finder := &Finder{&c, caps}
	return &Grants{
		Core: &c, Caps: caps, Releaser: releaser, Activator: &Activator{&c, caps, releaser}, Resizer: &Resizer{Core: &c}, Finder: finder,
		Devices: &Devices{Core: &c, caps: caps, finder: finder, Health: health.NewTable()},
	}
}

// Caps sets the limits of cgroups, and verifies them.
type Caps struct {
	*Core
	// gate is where caps are put on cgroups.
	gate *gate
}

// Releaser ends leases and claims.
type Releaser struct {
	*Core
	caps *Caps
}

// Activator puts caps in force for containers and processes.
type Activator struct {
	*Core
	caps     *Caps
	releaser *Releaser
}

// Recaller takes back what is lent to grants beyond their guarantee.
type Recaller interface {
	// Recall takes memory back that is missing, and then calls book.
	Recall(ctx context.Context, missing func() map[sharing.GPUID]sharing.Bytes, book func() error) error
}

// Resizer changes the memory of grants, and what they are lent.
type Resizer struct {
	*Core
	Recaller Recaller
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
	// Took is told of a new inventory, with what each GPU can give. It is called with the lock.
	Took func([]sharing.GPU, map[sharing.GPUID]choice.Report)
}

// Failpoints are the names of the points at which a crash test may stop the life cycle.
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

// Deadlines and intervals.
const (
	// CapDeadline bounds what is done with the caps of one grant.
	CapDeadline    = 20 * time.Second
	sampleDeadline = 2 * time.Second
	// capSlack is how far a limit in force may be below what was asked, since a driver rounds down to its pages.
	capSlack = 2 * sharing.MiB
	// listDeadline bounds one reading of the process list of a GPU.
	listDeadline = 500 * time.Millisecond
	// reconcileEvery is how often leases and claims are looked at even if no event came.
	reconcileEvery = 500 * time.Millisecond
	// reconcileGap is the least time between two looks.
	reconcileGap = 20 * time.Millisecond
	// verifyEvery is how often every cap is read back from the driver.
	verifyEvery = 10 * time.Second
)
