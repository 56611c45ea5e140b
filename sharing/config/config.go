// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package config is the SharingConfig: the pools of nodes, the profiles that requests may name, and the policies for
// grants that are over their cap.
//
// A Config is made by Decode, New or Default. It is valid and never changes afterwards: a change is a new Config.
// Decode is strict and lists every error with its field path and line. So a config is applied as a whole or not at all.
//
// It does not read files, watch anything, or keep the last known good config: its user does.
package config

import (
	"maps"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// The config's head.
const (
	APIVersion = sharing.Domain + "/v1alpha2"
	Kind       = "SharingConfig"
)

// MaxSize is the largest document that Decode reads, in bytes: what a ConfigMap can hold.
const MaxSize = 1 << 20

// Spec is the spec of a SharingConfig, as plain data.
type Spec struct {
	Pools    []Pool    `yaml:"pools"`
	Profiles []Profile `yaml:"profiles"`
	Prices   Prices    `yaml:"prices"`
}

// Pool is the nodes that a selector names, and their rules.
type Pool struct {
	// Name is unique among the pools.
	Name string `yaml:"name"`
	// NodeSelector are labels that a node must have; none means every node.
	NodeSelector map[string]string `yaml:"nodeSelector"`
	// Mode says what the nodes advertise to Kubernetes.
	Mode Mode `yaml:"mode"`
	// FrontEnd is the API through which the nodes advertise them.
	FrontEnd sharing.FrontEnd `yaml:"frontend"`
	// BindingConditions makes kube-scheduler bind a pod only after the MIG instances of its claims exist. It is for
	// sharing.FrontEndDRA.
	BindingConditions bool `yaml:"bindingConditions"`
	// Place is used where neither request nor profile says it; PlaceDefault means pack.
	Place sharing.Spread `yaml:"placementPolicy"`
	// MinLevel is demanded of every grant. LevelUnknown demands LevelReactive of shares, and nothing of other grants:
	// LevelNone allows shares that no backend enforces.
	MinLevel sharing.Level `yaml:"minEnforcement"`
	// Backends enforce shares here, strongest first. Nil means DefaultBackends.
	Backends []sharing.Backend `yaml:"backends"`
	// OverCap is what happens to a share above its cap; OverCapDefault means DefaultOverCap.
	OverCap OverCap `yaml:"onOverCap"`
	// OnUnmanagedProcess is what happens to processes that use a GPU without a grant on it.
	OnUnmanagedProcess OnUnmanagedProcess `yaml:"onUnmanagedProcess"`
	// ManagedMemory says whether programs with a share may allocate managed memory.
	ManagedMemory ManagedMemory `yaml:"managedMemory"`
	// UserQuota is what each user other than root may be granted on a node by the node API.
	UserQuota sharing.UserQuota `yaml:"userQuota"`
	// ComputePolicy says what becomes of GPU time that its owner does not use.
	ComputePolicy ComputePolicy `yaml:"computePolicy"`
	// TimeSlice and ComputeMode are set on the node's GPUs; AsIs leaves them as they are.
	TimeSlice   sharing.TimeSlice   `yaml:"timeSlice"`
	ComputeMode sharing.ComputeMode `yaml:"computeMode"`
	// Health is what becomes of those who run on a GPU that is faulty.
	Health Health `yaml:"health"`
	// Idle is what becomes of pods that leave their GPUs idle.
	Idle Idle `yaml:"idle"`
	// MPSDaemonScope is who shares an MPS daemon.
	MPSDaemonScope MPSDaemonScope `yaml:"mpsDaemonScope"`
	// MPSComputeMode says what Kerf does with the compute mode of GPUs on which MPS enforces shares.
	MPSComputeMode MPSComputeMode `yaml:"mpsComputeMode"`
	// MIGLayouts are fixed MIG layouts of the nodes' GPUs.
	MIGLayouts []MIGLayout `yaml:"migLayouts"`
	// MIGIdleTTL is how long an idle instance stays for the next request of the same profile; 0 means
	// DefaultMIGIdleTTL.
	MIGIdleTTL time.Duration `yaml:"migIdleTTL"`
	// AllowGPUReset allows the reset that a GPU before Hopper takes to change its MIG mode.
	AllowGPUReset bool `yaml:"allowGPUReset"`
	// AutoMIGMode says whether idle GPUs go in and out of MIG mode as demand asks; what is not the default is only for
	// ModeAuto.
	AutoMIGMode AutoMIGMode `yaml:"autoMIGMode"`
	// GPURules are rules for some of the nodes' GPUs, of which the first that fits one holds for it.
	GPURules []GPURule `yaml:"gpuRules"`
	// MaxSharesPerGPU, MemoryReserve and PowerLimitWatts hold for the GPUs of which no rule says otherwise, as in
	// GPUSettings.
	MaxSharesPerGPU int           `yaml:"maxSharesPerGPU"`
	MemoryReserve   sharing.Bytes `yaml:"memoryReserve"`
	PowerLimitWatts int           `yaml:"powerLimitWatts"`
	// Overcommit is how much more than they have is given of the GPUs of which no rule says otherwise.
	Overcommit sharing.Overcommit `yaml:"overcommit"`
	// PerGPUHour is the price of an hour of a whole GPU of the pool. It replaces those of the config; 0 leaves it to
	// them.
	PerGPUHour float64 `yaml:"perGPUHour"`
	// Profiles, when there are any, are the only profiles that requests may name here, and then every request
	// must name one. Nil means all profiles, and requests without one.
	Profiles []string `yaml:"allowedProfiles"`
}

// Profile is a named request with its rules. GPUs alone means whole GPUs, as on the command line.
type Profile struct {
	// Name is unique among the profiles.
	Name string `yaml:"name"`
	// Memory and Percent are totals over the shares.
	Memory  sharing.Bytes   `yaml:"memory"`
	Percent sharing.Percent `yaml:"percent"`
	// GPUs is the number of shares or whole GPUs; 0 means 1 where there are amounts.
	GPUs int `yaml:"gpuCount"`
	// Models are globs that bind besides those of the request.
	Models []string `yaml:"gpuModel"`
	// MinLevel is demanded of every grant, if the pool's is not higher; LevelUnknown leaves it to the pool.
	MinLevel sharing.Level `yaml:"minEnforcement"`
	// Backends are used in place of the pool's; nil leaves it to the pool.
	Backends []sharing.Backend `yaml:"backends"`
	// OverCap is used in place of the pool's; OverCapDefault leaves it to the pool.
	OverCap OverCap `yaml:"onOverCap"`
	// Place is used where the request does not say it.
	Place sharing.Spread `yaml:"placementPolicy"`
	// Priority is the class by which grants get idle GPU time, the higher the earlier, within MaxPriority either way. 0
	// leaves it to the pod, and is that of a process outside pods.
	Priority int32 `yaml:"priority"`
	// Burst is the hard limit up to which a grant gets free memory as burst memory; the zero value is none.
	Burst sharing.Burst `yaml:"maxBurstMemory"`
	// Namespaces are globs over the namespaces whose pods may use it, and Hours the times at which that may begin.
	// MaxPerPod is the most memory that one pod may have by it. No rule is nil and 0.
	Namespaces []string      `yaml:"namespaces"`
	Hours      []Hours       `yaml:"startWindows"`
	MaxPerPod  sharing.Bytes `yaml:"maxMemoryPerPod"`
	// AllowPrivileged lets pods that name it have privileged containers, which no cap holds. The chart's admission
	// policies know of it through the scheduler; Namespaces must say for whom it is.
	AllowPrivileged bool `yaml:"allowPrivileged"`
}

// Config is a valid SharingConfig. The zero value has no pools and no profiles.
type Config struct {
	doc Spec // Never changed, and only returned as a copy.
}

// Default is the Config of a node that was given none: one pool "default" of every node, no profiles.
func Default() Config {
	return Config{doc: Spec{Pools: []Pool{{Name: "default"}}}}
}

// New returns the Config that says what doc says. The error is Errors, without lines.
func New(doc Spec) (Config, error) {
	if mistakes := check(doc, doc.paths()); len(mistakes) > 0 {
		return Config{}, mistakes
	}
	return Config{doc: doc.clone()}, nil
}

// Spec returns the spec of c.
func (c Config) Spec() Spec { return c.doc.clone() }

// Pools returns the pools in the config's order.
func (c Config) Pools() []Pool { return c.doc.clone().Pools }

// Profiles returns the profiles in the config's order.
func (c Config) Profiles() []Profile { return c.doc.clone().Profiles }

// Profile returns the profile of that name.
func (c Config) Profile(name string) (Profile, bool) {
	for _, p := range c.doc.Profiles {
		if p.Name == name {
			return p.clone(), true
		}
	}
	return Profile{}, false
}

// ProfileNames returns the names that a request in the pool may give, sorted.
func (c Config) ProfileNames(p Pool) []string {
	var names []string
	for _, f := range c.doc.Profiles {
		if p.Profiles == nil || slices.Contains(p.Profiles, f.Name) {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (d Spec) clone() Spec {
	out := Spec{Prices: d.Prices}
	out.Prices.PerGPUHour = slices.Clone(d.Prices.PerGPUHour)
	for _, p := range d.Pools {
		p.NodeSelector, p.Profiles, p.Backends = maps.Clone(p.NodeSelector), slices.Clone(p.Profiles),
			slices.Clone(p.Backends)
		p.MIGLayouts, p.GPURules = cloneLayouts(p.MIGLayouts), cloneRules(p.GPURules)
		p.Health.TerminationTaints, p.Idle.Except = slices.Clone(p.Health.TerminationTaints),
			slices.Clone(p.Idle.Except)
		if len(p.NodeSelector) == 0 {
			p.NodeSelector = nil // none and empty mean the same
		}
		out.Pools = append(out.Pools, p)
	}
	for _, p := range d.Profiles {
		out.Profiles = append(out.Profiles, p.clone())
	}
	return out
}

func (p Profile) clone() Profile {
	p.Models, p.Backends = slices.Clone(p.Models), slices.Clone(p.Backends)
	p.Namespaces, p.Hours = slices.Clone(p.Namespaces), slices.Clone(p.Hours)
	return p
}

// request is what the profile gives by itself.
func (p Profile) request() sharing.Request {
	r := sharing.Request{
		Memory: p.Memory, Percent: p.Percent, GPUs: p.GPUs, ProfileModels: p.Models, MinLevel: p.MinLevel,
		Place: p.Place, Profile: p.Name, Burst: p.Burst,
	}
	switch {
	case r.Memory == 0 && r.Percent == 0 && r.GPUs != 0:
		r.Kind = sharing.KindWhole
	case r.GPUs == 0:
		r.GPUs = 1
	}
	return r
}
