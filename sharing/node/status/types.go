// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package status says what clients see of a node: its GPUs, and how its grants are enforced and used. It decides on
// values.
package status

import (
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/health"
	"github.com/kerf-gpu/kerf/sharing/node/mode"
	"github.com/kerf-gpu/kerf/sharing/node/settings/applied"
	"github.com/kerf-gpu/kerf/sharing/node/unplaced"
)

// State is one consistent picture of the node.
type State struct {
	Ready         bool
	NotReady      []string
	DriverVersion string
	AgentVersion  string
	// GPUSettings is sharing.GPUSettingsManage or sharing.GPUSettingsReadOnly.
	GPUSettings  string
	GPUs         []GPU
	Grants       []Grant
	Config       applied.Source
	Pool         string
	Profiles     []string
	ConfigErrors []string
	// Waiting are the settings of GPUs that wait for those who use them.
	Waiting  []change.Step
	Warnings []string
}

// GPU is one GPU with its use.
type GPU struct {
	sharing.GPU
	Used           sharing.Bytes
	UsedKnown      bool
	Granted        sharing.Bytes
	GrantedPercent sharing.Percent
	// Burst is memory that grants may use above their guarantees; Granted does not include it.
	Burst       sharing.Bytes
	Utilization int // -1 when not known
	// MIGState is the zero value for a GPU without MIG support.
	MIGState mig.State
	// Turning is what becomes of it where its MIG mode is demand's to change.
	Turning mode.Outlook
	Levels  []sharing.Level
	// LevelReason says why a share cannot have a higher level; empty where nothing stronger is listed. MinLevel is what
	// pool and rules demand of shares; LevelUnknown where they say nothing.
	LevelReason string
	MinLevel    sharing.Level
	// Backends are all that there are, strongest first; nil while they have not been probed.
	Backends []Backend
}

// Grant is one grant with its attachment and its use.
type Grant struct {
	ledger.Grant
	// Level is what holds the grant now: unknown when its cap could not be verified.
	Level       sharing.Level
	LevelReason string
	// Backend is the one that was chosen when its first attachment started.
	Backend sharing.Backend
	// Used and UsedKnown have one entry for each share.
	Used      []sharing.Bytes
	UsedKnown []bool
	PIDs      []int
	Health    sharing.Health
	Compute   Compute
	// Events has an entry for each share of an active grant. It is nil if another grant reports their shared cap.
	Events []CapEvents
}

// StateName is the state as APIs write it: Reserved, Active or Releasing.
func (g Grant) StateName() string {
	name := g.State().String()
	return strings.ToUpper(name[:1]) + name[1:]
}

// Backend is what one backend can do for shares of a GPU.
type Backend struct {
	Backend sharing.Backend
	// Listed is true when the pool lists it.
	Listed  bool
	Support choice.Support
}

// Compute says whether something holds a grant to its share of GPU time.
type Compute struct {
	// By is what does: ComputeExclusive, a backend's name, or ComputeNone.
	By string
	// Reason says for ComputeNone why nothing does, and else by what rule it is done.
	Reason string
	// Priority is its class: idle time goes to the highest first.
	Priority int32
	// Times has an entry for each share of an active grant whose programs count their time; else it is nil.
	Times []Time
}

// Time is what is known of an attachment's use of one GPU's time.
type Time = libkerf.Time

// What Compute.By is where it is no backend.
const (
	// ComputeExclusive: the grant has whole GPUs.
	ComputeExclusive = "exclusive"
	// ComputeNone: nothing.
	ComputeNone = "none"
)

// CapEvents is what happened at a grant's cap on one GPU. What is not counted is unknown, and never zero.
type CapEvents struct {
	// Refused is how many calls of the attachment's programs were refused because its cap left no room, since the
	// attachment began; only when Counted. The programs count it, and can write it.
	Refused uint64
	Counted bool
	// Violations is how many times it was found over its cap since this agent started. Delay is the longest time that
	// it can have been so before it was found last. Both need Watched.
	Violations uint64
	Delay      time.Duration
	Watched    bool
}

// LedgerState is the content of the ledger, without what the driver measures.
type LedgerState struct {
	// PodsNotReady is empty when pods' containers can start.
	PodsNotReady                      []string
	DriverVersion, AgentVersion, Pool string
	// CUDAVersion is the newest that the driver supports, such as "13.0"; empty if not known.
	CUDAVersion string
	// DriverReleased says that the driver is drained, and no process of Kerf uses it.
	DriverReleased bool
	GPUs           []BookedGPU
	// Grants are as State shows them; Used is not known in them.
	Grants []Grant
	// Config is the applied config, ConfigErrors are the errors of a newer one, and Waiting is what is pending of the
	// applied one.
	Config       applied.Source
	ConfigErrors []string
	Waiting      []change.Step
	// ConfigText is the text of the applied config, set while there are ConfigErrors.
	ConfigText string
	// Excluded are the GPUs that the pool leaves to others, and that are not among GPUs.
	Excluded []sharing.GPU
	// Unplaced are the pods that wait here for room, by UID.
	Unplaced []unplaced.Pod
	// Ending are the pods that end for a fault, or have, by UID.
	Ending []health.Ending
}

// BookedGPU is one GPU with its room, and the levels that a grant can have there.
type BookedGPU struct {
	ledger.View
	Levels []sharing.Level
	// LevelReason says why each backend is not available where no backend enforces shares, or where that is unknown.
	LevelReason string
	// MinLevel is what pool and rules demand of shares; LevelUnknown where they say nothing.
	MinLevel sharing.Level
	// Settings are what holds for it.
	Settings config.GPUSettings
	// MIG is the zero value if nothing is known of it. Faulty are the instances that a fault keeps from grants.
	MIG    mig.State
	Faulty []sharing.Instance
	//
	// SwitchableTo is what the GPU, which is idle, would become for a pod that requests that; empty where it stays as
	// it is.
	SwitchableTo mode.Kind
}
