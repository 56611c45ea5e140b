// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package change

import (
	"fmt"
	"strings"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// Effect is whom a changed rule concerns, and from when on.
type Effect uint8

// The effects.
const (
	// OnNew: grants that are made from then on; who holds one keeps what he has.
	OnNew Effect = iota
	// OnAll: at once, those who run as well.
	OnAll
	// OnGPU: each GPU of the node in its turn; Settle, NewGrants and what is wanted of its MIG instances say it for
	// each.
	OnGPU
	// OnNode: which nodes are of the pool.
	OnNode
)

// String returns it in a few words.
func (e Effect) String() string {
	switch e {
	case OnNew:
		return "new grants"
	case OnAll:
		return "at once"
	case OnGPU:
		return "each GPU"
	case OnNode:
		return "which nodes"
	}
	return ""
}

// poolEffects are those of a pool's fields, and profileEffects those of a profile's.
func poolEffects() map[string]Effect {
	return map[string]Effect{
		"name": OnNode, "nodeSelector": OnNode,
		"placementPolicy": OnNew, "minEnforcement": OnNew, "backends": OnNew, "mpsDaemonScope": OnNew,
		"mpsComputeMode":  OnNew,
		"allowedProfiles": OnNew, "userQuota": OnNew,
		"onOverCap": OnAll, "onUnmanagedProcess": OnAll, "health": OnAll, "idle": OnAll, "computePolicy": OnAll,
		"managedMemory": OnAll,
		"perGPUHour":    OnAll,
		"migIdleTTL":    OnAll, "allowGPUReset": OnAll, "autoMIGMode": OnAll,
		"bindingConditions": OnAll,
		"mode":              OnGPU, "frontend": OnGPU,
		"maxSharesPerGPU": OnGPU, "timeSlice": OnGPU, "computeMode": OnGPU, "gpuRules": OnGPU,
		"memoryReserve": OnGPU, "overcommit": OnGPU, "powerLimitWatts": OnGPU, "migLayouts": OnGPU,
	}
}

func profileEffects() map[string]Effect {
	return map[string]Effect{
		"name": OnNew, "memory": OnNew, "percent": OnNew, "gpuCount": OnNew, "maxBurstMemory": OnNew, "gpuModel": OnNew,
		"minEnforcement": OnNew, "backends": OnNew,
		"placementPolicy": OnNew, "namespaces": OnNew, "startWindows": OnNew, "maxMemoryPerPod": OnNew,
		"allowPrivileged": OnNew,
		"onOverCap":       OnAll, "priority": OnAll,
	}
}

// Rule is a rule for a node that two documents say differently.
type Rule struct {
	// Difference has its path as in the config, without the pool: onOverCap, profiles[small].memory, prices.perKWh.
	Difference
	Effect Effect
	// Profile is the profile whose rule it is, empty for one of the pool or of the prices.
	Profile string
}

// Rules are the rules for a node that differ, by path. They are those of its pool, of the profiles that its pods may
// name, and the prices. They exclude those of single GPUs (OnGPU) and the choice of its pool (OnNode).
func Rules(from, to config.Config, before, after config.Pool) ([]Rule, error) {
	before.Name, before.NodeSelector = after.Name, after.NodeSelector
	was, err := narrowed(from, before)
	if err != nil {
		return nil, err
	}
	is, err := narrowed(to, after)
	if err != nil {
		return nil, err
	}
	differences, err := Between(was, is)
	if err != nil {
		return nil, err
	}
	var out []Rule
	pool := "pools[" + after.Name + "]."
	for _, d := range differences {
		r := Rule{Difference: d, Effect: OnAll} // of the prices
		if field, of := strings.CutPrefix(d.Path, pool); of {
			r.Path, r.Effect = field, poolEffects()[top(field)]
		} else if rest, of := strings.CutPrefix(d.Path, "profiles["); of {
			name, field, _ := strings.Cut(rest, "].")
			r.Profile, r.Effect = name, profileEffects()[top(field)]
		}
		if r.Effect != OnGPU && r.Effect != OnNode {
			out = append(out, r)
		}
	}
	return out, nil
}

// narrowed is what a config says for the nodes of one pool.
func narrowed(c config.Config, p config.Pool) (config.Config, error) {
	d := c.Spec()
	all := d.Profiles
	d.Pools, d.Profiles = []config.Pool{p}, nil
	named := map[string]bool{}
	for _, name := range c.ProfileNames(p) {
		named[name] = true
	}
	for _, f := range all {
		if named[f.Name] {
			d.Profiles = append(d.Profiles, f)
		}
	}
	out, err := config.New(d)
	if err != nil {
		return out, fmt.Errorf("compare the rules of pool %q: %w", p.Name, err)
	}
	return out, nil
}

// top is the field itself of a path below it.
func top(path string) string {
	if i := strings.IndexAny(path, ".["); i >= 0 {
		return path[:i]
	}
	return path
}

// NewGrants are the settings of each GPU that differ and concern new grants alone, at once. For are the grants on it,
// which keep what they have.
func NewGrants(before, after config.Pool, uses []Use) []Step {
	var out []Step
	for _, u := range sorted(uses) {
		from, to := before.Of(u.GPU), after.Of(u.GPU)
		was, is := modeOf(before, from), modeOf(after, to)
		step := Step{GPU: u.GPU.UUID, Index: u.GPU.Index, For: u.Users}
		if was != is && !to.Excluded {
			step.What = append(step.What, fmt.Sprintf("mode %v -> %v", was, is))
		}
		if from.MaxSharesPerGPU != to.MaxSharesPerGPU && !to.Excluded {
			step.What = append(step.What, fmt.Sprintf("maxSharesPerGPU %s -> %s", bound(from.MaxSharesPerGPU),
				bound(to.MaxSharesPerGPU)))
		}
		if len(step.What) > 0 {
			out = append(out, step)
		}
	}
	return out
}

// modeOf is what a GPU of the pool gives.
func modeOf(p config.Pool, s config.GPUSettings) config.Mode {
	if s.Mode != config.ModeAuto {
		return s.Mode
	}
	return p.Mode
}

func bound(n int) string {
	if n == 0 {
		return "without bound"
	}
	return fmt.Sprint(n)
}
