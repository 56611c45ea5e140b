// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Class says what an XID means for the GPU.
type Class uint8

// The classes of XIDs.
const (
	// Application: a program caused it, or it tells of something that is dealt with already; the GPU is well.
	Application Class = iota
	// Drain: what runs goes on, and the GPU should take nothing new before it was reset.
	Drain
	// Critical: what runs there has ended or cannot be trusted.
	Critical
	// OffBus: the GPU is gone.
	OffBus
)

// String returns the class as metrics show it.
func (c Class) String() string {
	switch c {
	case Drain:
		return "drain"
	case Critical:
		return "critical"
	case OffBus:
		return "off-bus"
	case Application:
	}
	return "application"
}

// Classify returns the class of an XID by NVIDIA's catalogue. An unknown one is critical. Application faults are 13
// (graphics exception), 31 (memory page fault), 43 (reset channel), 45 (preemptive cleanup), 68 (video processor
// exception) and 109 (context switch timeout). NVIDIA's device plugin leaves these out, too. Also in this class: 92
// (high rate of corrected errors), 94 (contained uncorrectable error) and 154 (the recovery action changed, which
// probes read).
func Classify(xid uint64) Class {
	switch xid {
	case 13, 31, 43, 45, 68, 92, 94, 109, 154:
		return Application
	case 63:
		return Drain
	case xidLost:
		return OffBus
	}
	return Critical
}

// staysInside reports whether an XID that the driver reports for one MIG instance leaves the rest of its GPU alone. It
// is critical, and does not concern more by its nature. Those that do are 61, 62, 119 and 120 (the GPU's processors),
// and 64 (its memory's spare rows). So do 74 (its links), and 95 (an error that was not contained).
func staysInside(xid uint64) bool {
	switch xid {
	case 61, 62, 64, 74, 95, 119, 120:
		return false
	}
	return Classify(xid) == Critical
}

// xidLost is "GPU has fallen off the bus".
const xidLost = 79

const (
	remedyReset   = "reset the GPU, or reboot the node"
	remedyDrain   = "reset the GPU once nothing uses it"
	remedyReplace = "replace the GPU"
	remedyDriver  = "reboot the node if it goes on; the kernel's log has the driver's own words"
)

// describe says what an XID is, and the remedy.
func describe(xid uint64) (what, remedy string) {
	switch xid {
	case 48:
		what, remedy = "uncorrectable memory error", remedyReset
	case 61, 62:
		what, remedy = "a micro-controller of the GPU halted", remedyReset
	case 63:
		what, remedy = "a memory row is to be remapped", remedyDrain
	case 64:
		what, remedy = "a memory row cannot be remapped", remedyReset+"; replace it if that comes again"
	case 74:
		what, remedy = "NVLink error", remedyReset+", and look after the link if it comes again"
	case xidLost:
		what, remedy = "fell off the bus", remedyReset
	case 95:
		what, remedy = "uncontained memory error", remedyReset
	case 119, 120:
		what, remedy = "the GPU's system processor does not answer", remedyReset
	case 140:
		what, remedy = "memory error that was not recovered from", remedyReset
	default:
		return fmt.Sprintf("XID %d", xid), "see NVIDIA's XID catalogue for the remedy, mostly a GPU reset"
	}
	return fmt.Sprintf("XID %d: %s", xid, what), remedy
}

// burstQuiet is how long one XID of one GPU is not logged again.
const burstQuiet = 10 * time.Second

// bursts logs XIDs, and of many that are the same the first, and later how many there were since. GPUs and XIDs are
// few, so what it keeps is small.
type bursts struct {
	log *slog.Logger
	now func() time.Time
	of  map[burst]*quiet
}

type burst struct {
	gpu sharing.GPUID
	xid uint64
}

type quiet struct {
	until time.Time
	since int
}

func (b *bursts) tell(gpu sharing.GPUID, xid uint64) {
	if b.of == nil {
		b.of = map[burst]*quiet{}
	}
	key, now := burst{gpu, xid}, b.now()
	q := b.of[key]
	if q != nil && now.Before(q.until) {
		q.since++
		return
	}
	more := 0
	if q != nil {
		more = q.since
	}
	b.of[key] = &quiet{until: now.Add(burstQuiet)}
	b.log.Warn("received XID events", "gpu", string(gpu), "xid", xid, "class", Classify(xid).String(), "since", more)
}
