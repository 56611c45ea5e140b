// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/reactive"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/lists"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
)

// ContextSlack is more than the context of a process and its modules usually take: 0.3 to 0.6 GiB on GPUs of today.
const ContextSlack = sharing.GiB

// View is what a guard sees of the node, at one moment.
type View struct {
	// Driver is nil while no driver answers.
	Driver lists.Driver
	GPUs   []sharing.GPU
	// Grants are by id.
	Grants []Grant
	// Owners are the grants to which entries of process lists may belong.
	Owners []lists.Grant
	// Activating are the cgroups of grants that are not active yet, or that end. Their processes are not unmanaged.
	Activating []string
	// Complete is true if every running container with a grant is known.
	Complete bool
	Config   config.Config
	Pool     config.Pool
	// Contexts is the size of one context on each GPU. It is set if the backend of a grant is MPS.
	Contexts Contexts
}

// Grant is a grant, which does not change, and how it is enforced.
type Grant struct {
	*ledger.Grant
	// Speaker is the grant that stands for all that share its cap; itself if none does.
	Speaker ledger.GrantID
	Backend sharing.Backend
	// Watched is true if its usage is compared with its cap. Counted is true if its programs count their usage as well.
	Watched, Counted bool
	// Evictable is true if it is of a pod that can be evicted.
	Evictable bool
}

func (g Grant) served() bool { return backend.PropertiesOf(g.Backend).Served }

// onlyWatched reports whether only the reactive backend enforces the cap.
func (g Grant) onlyWatched() bool { return g.Backend.Level() == sharing.LevelReactive }

// has reports whether a cgroup belongs to the grant, which is active and has a share of the GPU.
func (g Grant) has(gpu sharing.GPURef, dir string) bool {
	return observe.Touches(g.Placement, gpu) && g.Active != nil && cgroup.Beneath(dir, g.Active.Cgroup)
}

// grant is the grant with an id; it is empty and false if there is none.
func (v View) grant(id ledger.GrantID) (Grant, bool) {
	i, found := slices.BinarySearchFunc(v.Grants, id,
		func(g Grant, id ledger.GrantID) int { return cmp.Compare(g.ID, id) })
	if !found {
		return Grant{Grant: &ledger.Grant{}}, false
	}
	return v.Grants[i], true
}

// owner is the grant to which a cgroup belongs, among those that share a cap with the one named.
func (v View) owner(id ledger.GrantID, gpu sharing.GPURef, dir string) (Grant, bool) {
	of, _ := v.grant(id)
	for _, g := range v.Grants {
		if g.Root() == of.Root() && g.has(gpu, dir) {
			return g, true
		}
	}
	return Grant{}, false
}

// speaker is the grant that stands for the one named.
func (v View) speaker(id ledger.GrantID) reactive.GrantID {
	if g, ok := v.grant(id); ok {
		id = g.Speaker
	}
	return reactive.GrantID(id)
}

// index is a GPU's index, for people.
func (v View) index(gpu sharing.GPURef) int {
	i := slices.IndexFunc(v.GPUs, func(g sharing.GPU) bool { return g.Ref() == gpu })
	if i < 0 {
		return 0
	}
	return v.GPUs[i].Index
}

// kills reports whether unmanaged processes are to be killed.
func (v View) kills() bool { return v.Pool.OnUnmanagedProcess == config.UnmanagedKill && v.Complete }

// granted reports whether a cgroup belongs to any grant with a share of the GPU.
func (v View) granted(gpu sharing.GPURef, dir string) bool {
	return slices.ContainsFunc(v.Grants, func(g Grant) bool { return g.has(gpu, dir) })
}

// activating reports whether a cgroup belongs to a grant that is about to become active or to end.
func (v View) activating(dir string) bool {
	return slices.ContainsFunc(v.Activating, func(of string) bool { return cgroup.Beneath(dir, of) })
}

// caps are the caps of a grant that the guard enforces. Nothing else enforces them, or MPS limits each of its processes
// and not their sum. Of grants that share a cap, the speaker has it.
func (v View) caps(g Grant) (out []reactive.Cap) {
	if !g.Watched || g.Active == nil || g.Speaker != g.ID {
		return nil
	}
	slack := sharing.Bytes(0)
	if g.Counted { // libkerf counts a context only after the driver lists it: Kerf kills no process for a context
		slack = ContextSlack
	}
	for _, f := range g.Caps() {
		if !f.Whole {
			out = append(out, reactive.Cap{Grant: reactive.GrantID(g.ID), GPU: f.GPU, Memory: f.Memory,
				Action: v.action(g), Slack: slack})
		}
	}
	return out
}

// action is what the guard does if a grant is over its cap.
func (v View) action(g Grant) reactive.Action {
	switch v.Config.OverCapOf(v.Pool, g.Request.Profile) {
	case config.OverCapKill:
		return reactive.Kill
	case config.OverCapEvict:
		if g.Evictable {
			return reactive.Evict
		}
		return reactive.Kill
	case config.OverCapDefault, config.OverCapWarn:
	}
	return reactive.Warn
}

// rule names the rule that says what happens to a grant above its cap, and whose it is.
func (v View) rule(profile string) string {
	rule := "onOverCap: " + v.Config.OverCapOf(v.Pool, profile).String()
	switch p, ok := v.Config.Profile(profile); {
	case ok && p.OverCap != config.OverCapDefault:
		return rule + " of profile " + profile
	case v.Pool.OverCap != config.OverCapDefault:
		return rule + " of pool " + v.Pool.Name
	}
	return rule + ", the default"
}
