// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// door is what the Library needs of NVML: plain calls that may hang or fail. The real one is goDoor; tests
// put their own in its place. Errors are as check makes them.
type door interface {
	system() (System, error)
	count() (int, error)
	byIndex(i int) (device, error)
	byUUID(id sharing.GPUID) (device, error)
	newEvents() (eventSet, error)
	hasLimits() bool
	shutdown() error
}

// device is one GPU. Its dynamic type is comparable.
type device interface {
	identity() (identity, error)
	mig() (bool, error)
	memory() (Memory, error)
	// processes returns the driver's lists (compute, graphics, MPS), of which some processes are in several.
	processes() ([][]resident, error)
	utilization() (int, error)
	// processTime returns the rows as the driver has them.
	processTime(since time.Time) ([]sharing.TimeRow, error)
	recovery() (Recovery, error)
	// links returns the active NVLinks.
	links() ([]link, error)
	computeMode() (sharing.ComputeMode, error)
	setComputeMode(mode sharing.ComputeMode) error
	powerLimit() (PowerLimit, error)
	setPowerLimit(milliwatts uint32) error
	// setLimit and limit are for a cgroup's directory; hasLimits says whether the library has them.
	setLimit(dir string, soft, hard sharing.Bytes) error
	limit(dir string) (Limit, error)
}

// eventSet waits for critical faults.
type eventSet interface {
	// register is sharing.ErrUnsupported for a GPU that tells no faults.
	register(device) error
	// wait returns ok false when nothing came within a second or so.
	wait() (ev rawEvent, ok bool, err error)
	free() error
}

type identity struct {
	uuid  sharing.GPUID
	model string
	minor int
	pci   pciAddress
	numa  int // -1: not known
	// product and board are device and vendor, and those of the board.
	product, board uint32
}

type pciAddress struct{ domain, bus, device uint32 }

// link is the far end of an NVLink: a switch, or the device at pci.
type link struct {
	toSwitch bool
	pci      pciAddress
}

// resident is one entry of a process list. A process has one per MIG instance that it uses.
type resident struct {
	pid    int
	gi, ci uint32
	used   sharing.Bytes
	known  bool
	mps    bool // from the list of MPS clients
}

type rawEvent struct {
	dev    device
	xid    uint64
	gi, ci *uint32
}
