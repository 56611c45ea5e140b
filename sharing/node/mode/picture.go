// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mode

import (
	"context"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// Node is what a Switcher needs of the node runtime.
type Node interface {
	// View calls f with the node's state. No grant changes until f returns. f must not wait for anything.
	View(f func(Snapshot))
	// ReservePod reserves grants for a pod that had none.
	ReservePod(ctx context.Context, asks []sharing.ContainerRequest) error
	// Changed returns a channel that is closed after the next change of the node's state. Announce is such a change.
	Changed() <-chan struct{}
	Announce()
	// Warn shows a sentence in the node's warnings until the next call; an empty one removes it.
	Warn(sentence string)
	// Switched reports the end of a switch.
	Switched(ctx context.Context, r Result)
}

// Manager is the MIG manager. Only Switch calls the driver.
type Manager interface {
	// Would is what a GPU would give to a request for a profile if it were in MIG mode, in addition to its grants.
	Would(gpu sharing.GPUID, profile string, start int, granted []mig.Granted) mig.Candidate
	// ModeSwitchable reports whether demand may switch the GPU's MIG mode.
	ModeSwitchable(gpu sharing.GPUID) bool
	// SwitchMode switches the MIG mode of an idle GPU. On an error the GPU is as it was.
	SwitchMode(ctx context.Context, gpu sharing.GPUID, on bool) error
	// States are the GPUs as the manager saw them last.
	States() []mig.State
}

// Snapshot is the state of the node at one moment.
type Snapshot struct {
	// Ready is true if the node grants, and PodsReady if it grants to pods.
	Ready, PodsReady bool
	// MinModeTime is how long a GPU keeps a mode after a switch.
	MinModeTime time.Duration
	GPUs        []ledger.View
	Capacity
}

// Capacity is what a Snapshot computes on demand. It is valid inside Node.View.
type Capacity interface {
	// Granted is what grants have of a GPU.
	Granted(gpu sharing.GPUID) []mig.Granted
	// Faults are the instances of a GPU that no grant can have because of a fault.
	Faults(gpu sharing.GPUID) []mig.Granted
	// Free is the allocator's view of all GPUs for a request of that profile. but replaces answers of backends.
	Free(profile string, but choice.Without) []allocator.GPUState
	// Rules applies the pool's rules to the view of a GPU without grants, and lists the backends for its shares.
	Rules(s *allocator.GPUState, profile string) []sharing.Backend
}

// Need is a request that no GPU answers, and that may be answered once GPUs have switched their mode.
type Need struct {
	// Who requests, for people, and Since when.
	Who   string
	Since time.Time
	// Requests are complete.
	Requests []sharing.Request
	// Prefer are the GPUs that the scheduler chose.
	Prefer []sharing.GPUID
	// But replaces answers of backends, see Capacity.Free.
	But choice.Without
	//
	// Containers are those of a pod, which the Switcher grants for once there is room. A process has none: it waits
	// itself.
	Containers []sharing.ContainerRequest

	// switched is true once a GPU has switched for it.
	switched bool
}

// on reports whether it needs MIG mode. The first request decides.
func (n Need) on() bool { return len(n.Requests) > 0 && n.Requests[0].Kind == sharing.KindMIG }

// Kind is what an idle GPU becomes with demand.
type Kind string

// The kinds.
const (
	None   Kind = ""
	MIG    Kind = "mig"
	Shared Kind = "shared"
)

func kindOf(on bool) Kind {
	if on {
		return MIG
	}
	return Shared
}

// Outlook is what becomes of a GPU whose MIG mode demand may switch. The zero value is that of another GPU.
type Outlook struct {
	// To is what it becomes with demand.
	To Kind
	// For is who it switches for now, empty if it does not.
	For string
	// Stays is a clause that says what keeps its mode for now, empty if nothing does.
	Stays string
}

// Ready is what the GPU would become at once, None if it keeps its mode for now.
func (o Outlook) Ready() Kind {
	if o.For == "" && o.Stays == "" {
		return o.To
	}
	return None
}

// Result is how a switch ended.
type Result struct {
	On   bool
	Took time.Duration
	// Err is nil if the GPU has switched.
	Err error
	// Reason and Message are an event of the node.
	Reason, Message string
}
