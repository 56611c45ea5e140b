// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
)

// possible says of each enforcement level why it cannot be had here; a level that can has no reason.
func possible(f Facts) map[sharing.Level]string {
	why := map[sharing.Level]string{}
	if f.Agent.Answered {
		for _, l := range []sharing.Level{
			sharing.LevelExclusive, sharing.LevelHardware, sharing.LevelDriver, sharing.LevelUserspace,
			sharing.LevelReactive,
		} {
			if !slices.Contains(f.Agent.Levels, l) {
				why[l] = f.agentsReason(l)
			}
		}
		return why
	}
	why[sharing.LevelHardware] = f.hardwareReason()
	base := f.baseReason()
	if base == "" && len(f.Driver.grantable()) == 0 {
		base = "every GPU is in MIG mode or unhealthy"
	}
	why[sharing.LevelExclusive] = base
	why[sharing.LevelDriver] = base
	why[sharing.LevelUserspace] = base
	why[sharing.LevelReactive] = base
	switch {
	case base != "":
	case f.Driver.MemoryLimits:
		why[sharing.LevelUserspace], why[sharing.LevelReactive] = limitsItself, limitsItself
	default:
		why[sharing.LevelDriver] = noLimits
		why[sharing.LevelUserspace] = "unknown without an agent: it tests libkerf"
		why[sharing.LevelReactive] = "unknown without an agent: it tests whether it sees the processes of the GPUs"
		if f.PIDSpace != 0 && f.PIDSpace != process.InitialPIDSpace {
			why[sharing.LevelReactive] = "the driver does not list the machine's processes here (see PID namespace)"
		}
	}
	return why
}

// The checks that explain others.
const (
	checkAgent   = "agent"
	checkCgroup  = "cgroup v2"
	checkLibrary = "driver library"
	checkLimits  = "memory limits"
	checkGPUs    = "GPUs"
)

// Reasons why a level is not possible.
const (
	notNeeded    = "not needed: "
	limitsItself = notNeeded + "level driver is stronger"
	noLimits     = "the driver has no memory limits (r615 and newer have them)"
	listIt       = "backends: [driver, reactive]"
	listClient   = "backends: [driver, libkerf]"
	noInstance   = "no GPU has a MIG instance that Kerf created, and " + sharing.ReadOnlySettings
)

// baseReason is what stands in the way of any grant.
func (f Facts) baseReason() string {
	switch {
	case f.Cgroup.V2 == "":
		return "there is no cgroup v2"
	case f.Cgroup.Unusable != "":
		return "no cgroup can be created (see cgroup v2)"
	case f.Driver.Library == "":
		return "there is no NVIDIA driver"
	case f.Driver.GPUProblem != "":
		return "the driver did not list its GPUs"
	case len(f.Driver.GPUs) == 0:
		return "there is no usable GPU"
	}
	return ""
}

// hardwareReason is why no MIG instance can be had, as far as the driver tells; empty where some GPU gives them.
func (f Facts) hardwareReason() string {
	if base := f.baseReason(); base != "" {
		return base
	}
	capable := false
	for _, g := range f.Driver.GPUs {
		sound := g.Health == sharing.HealthOK || g.Health == sharing.HealthUnknown
		if g.MIG && sound {
			return ""
		}
		capable = capable || g.MIG || g.MIGCapable
	}
	if capable && f.Agent.GPUSettings == sharing.GPUSettingsReadOnly {
		return noInstance
	}
	if capable {
		return "no healthy GPU is in MIG mode; the pool's field migLayouts enables it"
	}
	return "no GPU supports MIG mode"
}

// agentsReason is why a level is not among those of an agent that answered.
func (f Facts) agentsReason(l sharing.Level) string {
	switch {
	case !f.Agent.Ready:
		return "the agent is not ready (see agent)"
	case l == sharing.LevelHardware && f.Driver.Library != "" && f.hardwareReason() != "":
		return f.hardwareReason()
	case l == sharing.LevelHardware && f.Agent.GPUSettings == sharing.GPUSettingsReadOnly:
		return noInstance
	case l == sharing.LevelDriver && f.Driver.Library != "" && !f.Driver.MemoryLimits:
		return noLimits
	case l <= sharing.LevelUserspace && slices.Contains(f.Agent.Levels, sharing.LevelDriver):
		return limitsItself
	case l == sharing.LevelReactive && slices.Contains(f.Agent.Levels, sharing.LevelUserspace):
		return notNeeded + "level userspace is stronger"
	case f.Agent.whyNot(l) != "":
		return f.Agent.whyNot(l)
	case l == sharing.LevelUserspace:
		return "the pool of the node does not list it (" + listClient + ")"
	case l == sharing.LevelReactive:
		return "the pool of the node does not list it (" + listIt + "), or it works on no GPU now"
	}
	return "no GPU offers it now (kerf status -o wide shows their health)"
}

// whyNot is what the agent says of the backends of a level that its pool lists and that do not work.
func (a Agent) whyNot(l sharing.Level) string {
	var why []string
	for _, b := range a.Backends {
		if b.Level == l && b.Listed && !b.Works {
			why = append(why, b.Name+" "+b.Reason)
		}
	}
	return strings.Join(why, "; ")
}

// level is the check of one enforcement level.
func (f Facts) level(l sharing.Level, why string) Check {
	c := Check{Name: "level " + l.String(), Status: OK, Found: "possible", Effect: meaning(l)}
	if f.Agent.Answered {
		c.Found = "offered by the agent"
	}
	if why == "" {
		return c
	}
	c.Status, c.Found, c.Cause = Missing, "not possible: "+why, f.causeOf(why)
	if strings.HasPrefix(why, notNeeded) {
		c.Found = why
	}
	if l != sharing.LevelExclusive && l != sharing.LevelDriver {
		c.Status = Info // a stronger level exists, or the pool does not list it
	}
	return c
}

// causeOf returns the check that explains why a level is not possible; empty if the reason itself explains it.
func (f Facts) causeOf(why string) string {
	switch {
	case f.Agent.Answered && !f.Agent.Ready:
		return checkAgent
	case why == noLimits:
		return checkLimits
	case f.Agent.Answered || why != f.baseReason():
		return ""
	case f.Cgroup.V2 == "" || f.Cgroup.Unusable != "":
		return checkCgroup
	case f.Driver.Library == "":
		return checkLibrary
	}
	return checkGPUs
}

func meaning(l sharing.Level) string {
	switch l {
	case sharing.LevelExclusive:
		return "whole GPUs (kerf run --gpus 1)"
	case sharing.LevelHardware:
		return "MIG instances"
	case sharing.LevelDriver:
		return "shares; the driver rejects memory above the cap (kerf run --memory 10GiB)"
	case sharing.LevelUserspace:
		return "shares; MPS or libkerf rejects memory above the cap, and programs can bypass it"
	case sharing.LevelReactive:
		return "shares; the agent detects memory above the cap and acts"
	case sharing.LevelNone, sharing.LevelUnknown:
	}
	return "grants without enforcement"
}

func (f Facts) agent() Check {
	c := Check{Name: checkAgent, Found: f.Agent.Problem}
	switch {
	case f.Agent.Answered && f.Agent.Ready:
		c.Status, c.Found, c.Effect = OK, "ready at "+f.Dir, "grants are possible"
	case f.Agent.Answered:
		c.Status, c.Found, c.Effect = Warn, "not ready: "+strings.Join(f.Agent.NotReady, "; "),
			"the agent rejects requests until it is ready"
		c.Fix = "solve what it names; it then becomes ready"
	case f.Agent.Denied:
		c.Status, c.Effect, c.Fix = Unknown, "this user cannot use kerf run", "see group kerf"
	case f.Agent.Absent:
		c.Status, c.Effect, c.Fix = Missing, "kerf run does not work", "kerf-agent --run-dir "+f.Dir+" (as root)"
	default:
		c.Status, c.Effect, c.Fix = Missing, "kerf run does not work now",
			"see the agent's log, or start it: kerf-agent --run-dir "+f.Dir+" (as root)"
	}
	return c
}
