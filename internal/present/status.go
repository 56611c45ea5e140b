// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import "slices"

// Status is what kerf status -o json prints. Fields are only added. Arrays are never null; a pointer is null when the
// value is not known.
type Status struct {
	Ready         bool     `json:"ready"`
	NotReady      []string `json:"not_ready"`
	DriverVersion string   `json:"driver_version"`
	AgentVersion  string   `json:"agent_version"`
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
	// Waiting are GPUs whose settings wait for those who use them.
	Waiting []Waiting `json:"waiting"`
}

// Waiting is a GPU whose settings wait.
type Waiting struct {
	GPU   string   `json:"gpu"`
	Index int32    `json:"index"`
	What  []string `json:"what"`
	For   []string `json:"for"`
}

// GPU is one GPU of the node. Amounts are bytes, percents 0 to 100.
type GPU struct {
	UUID              string  `json:"uuid"`
	Index             int32   `json:"index"`
	Model             string  `json:"model"`
	PCI               string  `json:"pci"`
	NUMA              int32   `json:"numa"`
	MemoryBytes       uint64  `json:"memory_bytes"`
	ReservedBytes     uint64  `json:"reserved_bytes"`
	UsedBytes         *uint64 `json:"used_bytes"`
	GrantedBytes      uint64  `json:"granted_bytes"`
	GrantedPercent    uint32  `json:"granted_percent"`
	CurrentBurstBytes uint64  `json:"lent_bytes"`
	// MemoryOvercommit and ComputeOvercommit are how much is given in fractions, in percent of what there is; left out
	// for 100.
	MemoryOvercommit  uint32   `json:"memory_overcommit_percent,omitempty"`
	ComputeOvercommit uint32   `json:"compute_overcommit_percent,omitempty"`
	Utilization       *int32   `json:"utilization"`
	Health            string   `json:"health"`
	HealthReason      string   `json:"health_reason"`
	Levels            []string `json:"levels"`
	MIG               bool     `json:"mig"`
	// MIGState is null for a GPU without MIG support, and while nothing is known.
	MIGState *MIG `json:"mig_state"`
	// Backends are all backends of the GPU, strongest first.
	Backends []Backend `json:"backends"`
}

// Backend is what one backend can do on a GPU. Answer is supported, not supported or could not tell. If the node's pool
// does not list it, only grants of profiles that list it use it.
type Backend struct {
	Name   string `json:"name"`
	Level  string `json:"level"`
	Listed bool   `json:"listed"`
	Answer string `json:"answer"`
	Reason string `json:"reason"`
	Remedy string `json:"remedy"`
}

// Grant is one claim or lease. GPUs are the UUIDs of its shares, in their order.
type Grant struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	State       string   `json:"state"`
	GPUs        []string `json:"gpus"`
	Shares      []Share  `json:"fragments"`
	MemoryBytes uint64   `json:"memory_bytes"`
	Percent     uint32   `json:"percent"`
	UsedBytes   *uint64  `json:"used_bytes"`
	Level       string   `json:"level"`
	LevelReason string   `json:"level_reason"`
	Backend     string   `json:"backend"`
	Compute     Compute  `json:"compute"`
	Cgroup      string   `json:"cgroup"`
	PIDs        []int32  `json:"pids"`
	UID         uint32   `json:"uid"`
	PodUID      string   `json:"pod_uid"`
	Container   string   `json:"container"`
	Health      string   `json:"health"`
	Profile     string   `json:"profile"`
	Whole       bool     `json:"whole"`
	// The pod's names, the container instance that uses the grant now and its name in the pod. Also its cap if that is
	// less than the grant. Empty for a process outside of pods.
	PodNamespace string  `json:"pod_namespace"`
	PodName      string  `json:"pod_name"`
	ContainerID  string  `json:"container_id"`
	UsedBy       string  `json:"used_by"`
	InForce      []Share `json:"in_force"`
	// With is the ID of the grant whose cap this one shares. SharedCap is the cap of all that share it, on its GPUs;
	// empty if its cap is not shared.
	With      string  `json:"with"`
	SharedCap []Share `json:"joint"`
}

// Share is a grant's share of one GPU. MemoryBytes is guaranteed. CurrentBurstBytes is what it may use above that now,
// and BurstBytes the maximum of both together, 0 without bursting.
type Share struct {
	GPU               string  `json:"gpu"`
	MemoryBytes       uint64  `json:"memory_bytes"`
	CurrentBurstBytes uint64  `json:"lent_bytes"`
	BurstBytes        uint64  `json:"burst_bytes"`
	Percent           uint32  `json:"percent"`
	Whole             bool    `json:"whole"`
	UsedBytes         *uint64 `json:"used_bytes"`
	// MIGProfile is the MIG instance's, empty for a share or all of the GPU; MIGStart is where it begins.
	MIGProfile string `json:"mig_profile"`
	MIGStart   int32  `json:"mig_start"`
	// Time is null where the grant's programs do not count their time on the GPU.
	Time *Time `json:"time"`
}

// Compute tells what limits a grant to its percent of GPU time: By is libkerf, mps, exclusive (it has whole GPUs) or
// none. Why is the reason for none, and else the rule. Idle time goes to the highest Priority first.
type Compute struct {
	By       string `json:"by"`
	Why      string `json:"why"`
	Priority int32  `json:"priority"`
}

// Time is what a grant used of one GPU's time. UsedPercent is its part of the last ten seconds by the driver's samples;
// nil when unknown. Its programs count the rest. That is what was charged for launches, and how long launches waited
// for a budget, summed over threads. It is also the launches that ran past the budget because no agent refilled it or a
// copy had waited for a second.
type Time struct {
	UsedPercent        *int32  `json:"used_percent"`
	ChargedSeconds     float64 `json:"charged_seconds"`
	Launches           uint64  `json:"launches"`
	LaunchesPastBudget uint64  `json:"launches_past_budget"`
	WaitedSeconds      float64 `json:"waited_seconds"`
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
		sum += f.CurrentBurstBytes
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
