// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import "slices"

// Status is what kerf status -o json prints. Fields are only added. Arrays are never null; a pointer is null when
// the value is not known.
type Status struct {
	Ready         bool     `json:"ready"`
	NotReady      []string `json:"notReady"`
	DriverVersion string   `json:"driverVersion"`
	AgentVersion  string   `json:"agentVersion"`
	Config        Config   `json:"config"`
	Warnings      []string `json:"warnings"`
	GPUs          []GPU    `json:"gpus"`
	Grants        []Grant  `json:"grants"`
}

// Config describes the applied config.
type Config struct {
	Source   string   `json:"source"`
	SHA256   string   `json:"sha256"`
	Pool     string   `json:"pool"`
	Errors   []string `json:"errors"`
	Profiles []string `json:"profiles"`
	// Pending are the GPUs with settings that wait until the GPU is idle.
	Pending []PendingSettings `json:"pending"`
}

// PendingSettings are settings of a GPU that wait.
type PendingSettings struct {
	GPU       string   `json:"gpu"`
	Index     int32    `json:"index"`
	Settings  []string `json:"settings"`
	BlockedBy []string `json:"blockedBy"`
}

// GPU is one GPU of the node. Amounts are bytes, percents 0 to 100. CapacityBytes, ReservedBytes and GrantedBytes are
// null together, for a GPU that uses the system's memory.
type GPU struct {
	UUID           string  `json:"uuid"`
	Index          int32   `json:"index"`
	Model          string  `json:"model"`
	PCI            string  `json:"pci"`
	NUMA           int32   `json:"numa"`
	CapacityBytes  *uint64 `json:"capacityBytes"`
	ReservedBytes  *uint64 `json:"reservedBytes"`
	UsedBytes      *uint64 `json:"usedBytes"`
	GrantedBytes   *uint64 `json:"grantedBytes"`
	GrantedPercent uint32  `json:"grantedPercent"`
	BurstBytes     uint64  `json:"burstBytes"`
	// MemoryOvercommit and ComputeOvercommit are how much is granted in shares, in percent of the capacity; absent
	// for 100.
	MemoryOvercommit  uint32   `json:"memoryOvercommitPercent,omitempty"`
	ComputeOvercommit uint32   `json:"computeOvercommitPercent,omitempty"`
	Utilization       *uint32  `json:"utilization"`
	Health            string   `json:"health"`
	HealthReason      string   `json:"healthReason"`
	Levels            []string `json:"levels"`
	MIG               bool     `json:"mig"`
	// MIGState is null for a GPU without MIG support, and while nothing is known.
	MIGState *MIG `json:"migState"`
	// Backends are all backends of the GPU, strongest first.
	Backends []Backend `json:"backends"`
}

// Backend is what one backend can do on a GPU. Answer is supported, not supported or could not tell. If the node's
// pool does not list it, only grants of profiles that list it use it.
type Backend struct {
	Name   string `json:"name"`
	Level  string `json:"level"`
	Listed bool   `json:"listed"`
	Answer string `json:"answer"`
	Reason string `json:"reason"`
	Remedy string `json:"remedy"`
}

// Grant is one grant. State is Reserved, Active or Releasing. A Recovered grant was rebuilt after its checkpoint was
// lost. GPUs are the UUIDs of its shares, in their order.
type Grant struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	State       string   `json:"state"`
	Recovered   bool     `json:"recovered"`
	GPUs        []string `json:"gpus"`
	Shares      []Share  `json:"shares"`
	MemoryBytes uint64   `json:"memoryBytes"`
	Percent     uint32   `json:"percent"`
	UsedBytes   *uint64  `json:"usedBytes"`
	Level       string   `json:"level"`
	LevelReason string   `json:"levelReason"`
	Backend     string   `json:"backend"`
	Compute     Compute  `json:"compute"`
	Cgroup      string   `json:"cgroup"`
	PIDs        []int32  `json:"pids"`
	UserID      uint32   `json:"userID"`
	PodUID      string   `json:"podUID"`
	Container   string   `json:"container"`
	Health      string   `json:"health"`
	Profile     string   `json:"profile"`
	Whole       bool     `json:"whole"`
	// The pod's names, its container, the container instance that uses the grant now, and its cap if that is less.
	// They are empty for a process outside of pods.
	PodNamespace   string  `json:"podNamespace"`
	PodName        string  `json:"podName"`
	ContainerID    string  `json:"containerID"`
	UsedBy         string  `json:"usedBy"`
	EnforcedShares []Share `json:"enforcedShares"`
	// CapSharedWith is the ID of the grant whose cap this one shares. SharedCap is the cap of all that share it, on
	// its GPUs; empty if its cap is not shared.
	CapSharedWith string  `json:"capSharedWith"`
	SharedCap     []Share `json:"sharedCap"`
	// Claims are the requests of ResourceClaims that it comes from, as CLAIM/REQUEST in its pod's namespace; absent for
	// a grant by limits.
	Claims []string `json:"claims,omitempty"`
}

// Share is a grant's share of one GPU. MemoryBytes is guaranteed, and 0 for a whole GPU whose memory is unknown.
// BurstBytes is what it may use above that now, and MaxBurstBytes the maximum of both together, 0 without bursting.
type Share struct {
	GPU           string  `json:"gpu"`
	MemoryBytes   uint64  `json:"memoryBytes"`
	BurstBytes    uint64  `json:"burstBytes"`
	MaxBurstBytes uint64  `json:"maxBurstBytes"`
	Percent       uint32  `json:"percent"`
	Whole         bool    `json:"whole"`
	UsedBytes     *uint64 `json:"usedBytes"`
	// MIGProfile is the MIG instance's, empty for a share or all of the GPU; MIGStart is where it begins.
	MIGProfile string `json:"migProfile"`
	MIGStart   int32  `json:"migStart"`
	// Time is null where the grant's programs do not count their time on the GPU.
	Time *Time `json:"time"`
}

// Compute tells what limits a grant to its percent of GPU time: By is libkerf, mps, exclusive (it has whole GPUs) or
// none. Reason is why nothing does, and else the rule. Idle time goes to the highest Priority first.
type Compute struct {
	By       string `json:"by"`
	Reason   string `json:"reason"`
	Priority int32  `json:"priority"`
}

// Time is the GPU time of an active grant on one GPU. UsedPercent is its part of the last ten seconds by the
// driver's samples; nil if unknown. Its programs count the rest: the charges for launches, the launches over budget,
// and how long launches waited for a budget, summed over threads. A launch is over budget if no agent refilled the
// budget, or a copy had waited for a second.
type Time struct {
	UsedPercent        *uint32 `json:"usedPercent"`
	ChargedSeconds     float64 `json:"chargedSeconds"`
	Launches           uint64  `json:"launches"`
	LaunchesOverBudget uint64  `json:"launchesOverBudget"`
	ThrottledSeconds   float64 `json:"throttledSeconds"`
}

// shownState is the state for people.
func (g Grant) shownState() string {
	if g.Recovered {
		return g.State + " (recovered)"
	}
	return g.State
}

// Label is namespace/pod/container of a pod's grant, else the grant's name, else its id.
func (g Grant) Label() string {
	switch {
	case g.PodName != "":
		return g.PodNamespace + "/" + g.PodName + "/" + g.Container
	case g.Name != "":
		return g.Name
	}
	return g.ID
}

// burst is the memory that the grant may use above its guarantee, on all its GPUs.
func (g Grant) burst() (sum uint64) {
	for _, f := range g.Shares {
		sum += f.BurstBytes
	}
	return sum
}

// InNamespace returns the status with the grants of one namespace's pods only; an empty name keeps all.
func (s Status) InNamespace(namespace string) Status {
	if namespace != "" {
		s.Grants = slices.DeleteFunc(slices.Clone(s.Grants), func(g Grant) bool { return g.PodNamespace != namespace })
	}
	return s
}

// Names returns the GPUs and the grants of the node, one per line of -o name.
func (s Status) Names() []string {
	var out []string
	for _, g := range s.GPUs {
		out = append(out, "gpu/"+g.UUID)
	}
	for _, g := range s.Grants {
		out = append(out, "grant/"+g.ID)
	}
	return out
}
