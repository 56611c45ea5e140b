// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor checks a machine for Kerf and suggests fixes.
//
// Gather reads facts from the machine. Examine is pure and evaluates them. Gather changes nothing, runs no program, and
// works without an agent, a driver or root. It reports what it cannot read as unknown, never as missing.
//
// The verdict is a forecast. If an agent answers, its levels replace the forecast.
package doctor

import "github.com/kerf-gpu/kerf/sharing"

// Status is the outcome of one check.
type Status string

// The outcomes.
const (
	// OK: present, and no problem found.
	OK Status = "ok"
	// Info: a fact that needs no action.
	Info Status = "info"
	// Warn: Kerf works, but with a restriction.
	Warn Status = "warn"
	// Missing: something is absent; Effect says what does not work.
	Missing Status = "missing"
	// Unknown: the check was not possible.
	Unknown Status = "unknown"
)

// Check is one fact and its consequence.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Found is what was found.
	Found string `json:"found"`
	// Effect is what follows from it for grants.
	Effect string `json:"effect"`
	// Fix is the command or setting that solves the problem; empty if there is none, or if Cause has it.
	Fix string `json:"fix"`
	// Cause is the name of the check that explains this one; empty if the check stands for itself.
	Cause string `json:"cause,omitempty"`
}

// Report is the verdict on a machine.
type Report struct {
	// Enforced is true when a grant at level driver, exclusive or hardware is possible here.
	Enforced bool `json:"enforced"`
	// Levels are the enforcement levels that grants can have here, strongest first.
	Levels []string `json:"levels"`
	// FromAgent is true when Levels is the agent's word, and false when it is a forecast.
	FromAgent bool    `json:"fromAgent"`
	Checks    []Check `json:"checks"`
}

// Examine judges facts. It is pure.
func Examine(f Facts) Report {
	levels := possible(f)
	r := Report{
		Levels: []string{}, FromAgent: f.Agent.Answered,
		Checks: []Check{
			f.kernel(), f.root(), f.pidNamespace(), f.cgroupV2(), f.dmem(),
			f.library(), f.driverVersion(), f.memoryLimits(), f.deviceFiles(), f.gpus(), f.mig(),
			f.agent(), f.gpuSettings(), f.group(), f.mps(), f.cdi(),
		},
	}
	r.Checks = append(r.Checks, f.containers()...)
	for _, l := range []sharing.Level{
		sharing.LevelExclusive, sharing.LevelHardware, sharing.LevelDriver, sharing.LevelUserspace,
		sharing.LevelReactive,
	} {
		why := levels[l]
		if why == "" {
			r.Levels = append(r.Levels, l.String())
			r.Enforced = r.Enforced || l.AtLeast(sharing.LevelDriver)
		}
		r.Checks = append(r.Checks, f.level(l, why))
	}
	return r
}

// Facts are what was seen of a machine. A pointer or list that is nil was not seen, for the reason in the
// field's own error text where there is one.
type Facts struct {
	// Kernel is the running kernel's release, such as "6.12.0-1-amd64".
	Kernel string
	// Root is true for an effective user id of 0.
	Root bool
	// PIDSpace is the number of the pid namespace that this program is in; 0: it could not be read.
	PIDSpace uint64
	// Dir is the directory of the agent that was asked.
	Dir string

	Cgroup Cgroup
	Driver Driver
	Agent  Agent
	Group  Group
	// Runtime is the container runtime.
	Runtime Runtime

	// MPSControl is the path of nvidia-cuda-mps-control, or empty when PATH does not have it.
	MPSControl string
	// CDISpecs are NVIDIA's CDI spec files that a container engine would find.
	CDISpecs []string
}

// Cgroup is what was seen of control groups.
type Cgroup struct {
	// V2 is where the v2 hierarchy is mounted, or empty with Problem.
	V2, Problem string
	// Unusable says why no group can be made there, and Remedy what to do; empty where one was made, or could not be
	// tried.
	Unusable, Remedy string
	// V1 is true when v1 controllers are mounted too, as on hybrid machines.
	V1 bool
	// Controllers are the v2 controllers of the root group; nil when they could not be read.
	Controllers []string
}

// Driver is what was seen of NVIDIA's driver.
type Driver struct {
	// Library is the management library's path, or empty with Problem.
	Library, Problem string
	Version          string
	// MemoryLimits is true when the library has the memory-limit functions.
	MemoryLimits bool
	// GPUs are the usable ones; LeftOut says of each other one why.
	GPUs    []sharing.GPU
	LeftOut []string
	// GPUProblem says why the GPUs could not be listed.
	GPUProblem string
	// Devices are the device files (nvidiactl, nvidia0, ...) that are there.
	Devices []string
}

// Agent is what the agent of Dir answered.
type Agent struct {
	// Answered is true when it did; else Problem says why not, with the remedy.
	Answered bool
	Problem  string
	// Absent is true when there is no socket at all.
	Absent bool
	// Denied is true when there is a socket, and no permission for it.
	Denied        bool
	Ready         bool
	NotReady      []string
	DriverVersion string
	// GPUSettings is the agent's --gpu-settings; empty: it does not say.
	GPUSettings string
	// Levels are those that some GPU of the agent can give now, strongest first.
	Levels []sharing.Level
	// Backends are the agent's words on what holds shares, of one GPU that has them.
	Backends []Backend
}

// Backend is what an agent says of one backend for shares.
type Backend struct {
	Name  string
	Level sharing.Level
	// Listed is true when its pool lists it, and Works when it is supported; else Reason says why not.
	Listed, Works bool
	Reason        string
}

// Group is the unix group whose members may use the agent without being root.
type Group struct {
	// Known is false when the group database could not be read, with Problem.
	Known   bool
	Problem string
	Exists  bool
	// Member is true when this process is in the group.
	Member bool
}

// gpuSettings says whether the agent changes GPU settings, and what is off where it does not.
func (f Facts) gpuSettings() Check {
	c := Check{Name: "GPU settings"}
	switch f.Agent.GPUSettings {
	case sharing.GPUSettingsManage:
		c.Status, c.Found, c.Effect = OK, "managed by the agent", "the agent sets "+sharing.GPUSettingsNames+
			" as the pool says"
	case sharing.GPUSettingsReadOnly:
		c.Status, c.Found = Warn, "read-only (kerf-agent --gpu-settings=read-only)"
		c.Effect = "the agent enforces memory caps; it does not change " + sharing.GPUSettingsNames
		c.Fix = "none if another tool sets them; else start the agent with --gpu-settings=manage"
	default:
		c.Status, c.Found, c.Effect = Unknown, "the agent does not report it",
			"unknown whether the agent changes GPU settings"
		if !f.Agent.Answered {
			c.Found, c.Cause = "no agent answers", checkAgent
		}
	}
	return c
}
