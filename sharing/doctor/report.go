// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import "github.com/kerf-gpu/kerf/sharing"

// Status is the outcome of one check.
type Status string

// The outcomes.
const (
	// OK: it is there and works as far as was seen.
	OK Status = "ok"
	// Warn: Kerf works, but something is less than it could be.
	Warn Status = "warn"
	// Missing: it is not there, and what Means says cannot be had.
	Missing Status = "missing"
	// Unknown: it could not be told.
	Unknown Status = "unknown"
)

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Seen is what was found.
	Seen string `json:"seen"`
	// Means is what follows from it for grants.
	Means string `json:"means"`
	// Mend is the command or setting that mends it; empty when there is nothing to mend.
	Mend string `json:"mend"`
}

// Report is the verdict on a machine. Its JSON is for scripts; fields are only added.
type Report struct {
	// Enforced is true when a grant at level driver, exclusive or hardware is possible here.
	Enforced bool `json:"enforced"`
	// Levels are the enforcement levels that grants can have here, strongest first.
	Levels []string `json:"levels"`
	// FromAgent is true when Levels is the agent's word, and false when it is a forecast.
	FromAgent bool    `json:"from_agent"`
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
		sharing.LevelExclusive, sharing.LevelHardware, sharing.LevelDriver, sharing.LevelClient, sharing.LevelReactive,
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
