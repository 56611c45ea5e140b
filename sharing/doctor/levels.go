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
			sharing.LevelExclusive, sharing.LevelHardware, sharing.LevelDriver, sharing.LevelClient, sharing.LevelReactive,
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
		base = "every GPU is in MIG mode or not healthy"
	}
	why[sharing.LevelExclusive] = base
	why[sharing.LevelDriver] = base
	why[sharing.LevelClient] = base
	why[sharing.LevelReactive] = base
	switch {
	case base != "":
	case f.Driver.MemoryLimits:
		why[sharing.LevelClient], why[sharing.LevelReactive] = limitsItself, limitsItself
	default:
		why[sharing.LevelDriver] = "the driver has no memory limits (r615 and newer have them)"
		why[sharing.LevelClient] = "no agent answers that could say whether libkerf works here"
		why[sharing.LevelReactive] = "no agent answers that could say whether it sees the processes of the GPUs"
		if f.PIDSpace != 0 && f.PIDSpace != process.InitialPIDSpace {
			why[sharing.LevelReactive] = "the driver does not list the machine's processes here (see pid namespace)"
		}
	}
	return why
}

// What stands in the way of levels.
const (
	limitsItself = "the driver limits memory itself, which is stronger"
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
		return "no cgroup can be made (see cgroup v2)"
	case f.Driver.Library == "":
		return "there is no NVIDIA driver"
	case f.Driver.GPUProblem != "":
		return "the GPUs could not be listed"
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
		return "no healthy GPU is in MIG mode; a layout of the pool (mig) puts GPUs there"
	}
	return "no GPU here can be put in MIG mode"
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
		return "the driver has no memory limits (r615 and newer have them)"
	case l <= sharing.LevelClient && slices.Contains(f.Agent.Levels, sharing.LevelDriver):
		return limitsItself
	case l == sharing.LevelReactive && slices.Contains(f.Agent.Levels, sharing.LevelClient):
		return "a library in the programs refuses what is too much, which is stronger"
	case f.Agent.whyNot(l) != "":
		return f.Agent.whyNot(l)
	case l == sharing.LevelClient:
		return "the agent's pool does not list it (" + listClient + ")"
	case l == sharing.LevelReactive:
		return "the agent's pool does not list it (" + listIt + "), or no GPU can be watched now"
	}
	return "no GPU of the agent offers it now (kerf status -o wide shows their health)"
}

// whyNot is what the agent says of the backends of a level that its pool lists and that do not work.
func (a Agent) whyNot(l sharing.Level) string {
	var why []string
	for _, b := range a.Backends {
		if b.Level == l && b.Listed && !b.Works {
			why = append(why, b.Name+" "+b.Why)
		}
	}
	return strings.Join(why, "; ")
}

// level is the check of one enforcement level.
func (f Facts) level(l sharing.Level, why string) Check {
	c := Check{Name: "level " + l.String(), Status: OK, Seen: "possible", Means: meaning(l)}
	if f.Agent.Answered {
		c.Seen = "offered by the agent"
	}
	if why == "" {
		return c
	}
	c.Status, c.Seen = Missing, "not possible: "+why
	switch l {
	case sharing.LevelExclusive, sharing.LevelDriver:
		c.Mend = "see the checks above that are not ok"
	default:
		c.Status = Warn // what is stronger, or wanted by nobody, is no lack of the machine
	}
	return c
}

func meaning(l sharing.Level) string {
	switch l {
	case sharing.LevelExclusive:
		return "a whole GPU, and nobody else on it (kerf run --gpus 1)"
	case sharing.LevelHardware:
		return "a MIG instance"
	case sharing.LevelDriver:
		return "a part of a GPU; the driver refuses memory past the cap (kerf run --memory 10GiB)"
	case sharing.LevelClient:
		return "a part of a GPU, held while the program plays along"
	case sharing.LevelReactive:
		return "a part of a GPU, watched and acted on after the fact"
	case sharing.LevelNone, sharing.LevelUnknown:
	}
	return "nothing holds the grant"
}

func (f Facts) agent() Check {
	c := Check{Name: "agent", Seen: f.Agent.Problem}
	switch {
	case f.Agent.Answered && f.Agent.Ready:
		c.Status, c.Seen, c.Means = OK, "ready at "+f.Dir, "claims are taken"
	case f.Agent.Answered:
		c.Status, c.Seen, c.Means = Warn, "not ready: "+strings.Join(f.Agent.NotReady, "; "), "claims are refused until it is ready"
		c.Mend = "mend what it names; it becomes ready by itself"
	case f.Agent.Denied:
		c.Status, c.Means, c.Mend = Unknown, "this user cannot use kerf run", "see group kerf"
	case f.Agent.Absent:
		c.Status, c.Means, c.Mend = Missing, "kerf run does not work", "kerf-agent --dir "+f.Dir+" (as root)"
	default:
		c.Status, c.Means, c.Mend = Missing, "kerf run does not work now", "see the agent's log, or start it: kerf-agent --dir "+f.Dir+" (as root)"
	}
	return c
}
