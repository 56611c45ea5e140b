// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import "slices"

// Status is the document that kerf status -o json prints. Fields are only added. Arrays are never null; a
// pointer is null when the value is not known.
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

// Config describes the configuration in force.
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
	UUID           string  `json:"uuid"`
	Index          int32   `json:"index"`
	Model          string  `json:"model"`
	PCI            string  `json:"pci"`
	NUMA           int32   `json:"numa"`
	MemoryBytes    uint64  `json:"memory_bytes"`
	ReservedBytes  uint64  `json:"reserved_bytes"`
	UsedBytes      *uint64 `json:"used_bytes"`
	GrantedBytes   uint64  `json:"granted_bytes"`
	GrantedPercent uint32  `json:"granted_percent"`
	LentBytes      uint64  `json:"lent_bytes"`
	// MemoryOvercommit and ComputeOvercommit are how much is given in fractions, in percent of what there is; left out for 100.
	MemoryOvercommit  uint32   `json:"memory_overcommit_percent,omitempty"`
	ComputeOvercommit uint32   `json:"compute_overcommit_percent,omitempty"`
	Utilization       *int32   `json:"utilization"`
	Health            string   `json:"health"`
	HealthReason      string   `json:"health_reason"`
	Levels            []string `json:"levels"`
	MIG               bool     `json:"mig"`
	// MIGState is null for a GPU that cannot be cut into MIG instances, and while nothing is known of that.
	MIGState *MIG `json:"mig_state"`
	// Backends are all ways of holding a share of the GPU, strongest first.
	Backends []Backend `json:"backends"`
}

// Backend is what one way of holding shares to their size can do on a GPU. Answer is supported, not supported
// or could not tell; one that is not listed by the node's pool is used by no grant but those of profiles that list it.
type Backend struct {
	Name   string `json:"name"`
	Level  string `json:"level"`
	Listed bool   `json:"listed"`
	Answer string `json:"answer"`
	Reason string `json:"reason"`
	Remedy string `json:"remedy"`
}

// Grant is one claim or lease. GPUs are the UUIDs of its fragments, in their order.
type Grant struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	State       string     `json:"state"`
	GPUs        []string   `json:"gpus"`
	Fragments   []Fragment `json:"fragments"`
	MemoryBytes uint64     `json:"memory_bytes"`
	Percent     uint32     `json:"percent"`
	UsedBytes   *uint64    `json:"used_bytes"`
	Level       string     `json:"level"`
	LevelReason string     `json:"level_reason"`
	Backend     string     `json:"backend"`
	Compute     Compute    `json:"compute"`
	Cgroup      string     `json:"cgroup"`
	PIDs        []int32    `json:"pids"`
	UID         uint32     `json:"uid"`
	PodUID      string     `json:"pod_uid"`
	Container   string     `json:"container"`
	Health      string     `json:"health"`
	Profile     string     `json:"profile"`
	Whole       bool       `json:"whole"`
	// The pod's names, the container instance that uses the grant now, its name in the pod, and what it is
	// held to where that is less than the grant; empty for a process of its own.
	PodNamespace string     `json:"pod_namespace"`
	PodName      string     `json:"pod_name"`
	ContainerID  string     `json:"container_id"`
	UsedBy       string     `json:"used_by"`
	InForce      []Fragment `json:"in_force"`
	// With is the id of the grant whose cap this one shares, and Joint what all that share one cap have together on its
	// GPUs; empty where its cap is its own.
	With  string     `json:"with"`
	Joint []Fragment `json:"joint"`
}

// Fragment is the piece of one GPU that a grant holds. MemoryBytes is guaranteed; LentBytes is what it may use
// beyond that now, and BurstBytes the most that both may be together, 0 where nothing is ever lent.
type Fragment struct {
	GPU         string  `json:"gpu"`
	MemoryBytes uint64  `json:"memory_bytes"`
	LentBytes   uint64  `json:"lent_bytes"`
	BurstBytes  uint64  `json:"burst_bytes"`
	Percent     uint32  `json:"percent"`
	Whole       bool    `json:"whole"`
	UsedBytes   *uint64 `json:"used_bytes"`
	// MIGProfile is the MIG instance's, empty for a share or all of the GPU; MIGStart is where it begins.
	MIGProfile string `json:"mig_profile"`
	MIGStart   int32  `json:"mig_start"`
	// Time is null where the grant's programs do not count their time on the GPU.
	Time *Time `json:"time"`
}

// Compute says whether something holds a grant to its percent of GPU time: By is libkerf, mps, exclusive (it has whole
// GPUs) or none. Why says for none why nothing does, and else by what rule it is done. Idle time is lent to the highest
// Priority first.
type Compute struct {
	By       string `json:"by"`
	Why      string `json:"why"`
	Priority int32  `json:"priority"`
}

// Time is what a lease used of one GPU's time. UsedPercent is its part of the last ten seconds by the driver's samples; nil when
// unknown. The rest its programs count: what was charged for launches, those that ran past the budget because no agent refilled it or a copy had waited for a second,
// and how long launches waited for a budget, summed over threads.
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

// lent is what the grant may use beyond what it is guaranteed, on all its GPUs.
func (g Grant) lent() (sum uint64) {
	for _, f := range g.Fragments {
		sum += f.LentBytes
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
