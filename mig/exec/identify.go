// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
)

// identify parts what the driver reports into Kerf's instances and all others. It takes nothing for Kerf's that the
// journal does not account for: the same place, the same id, and the same MIG device, or what the call that was under
// way must have made of it.
func identify(j journal, seen []Instance) (mine []Own, foreign []Instance) {
	for _, in := range seen {
		if o, ok := j.own(in); ok {
			mine = append(mine, o)
		} else {
			foreign = append(foreign, in)
		}
	}
	return mine, foreign
}

func (j journal) own(in Instance) (Own, bool) {
	i := slices.IndexFunc(j.Mine, func(m owned) bool { return m.mig() == in.Place && m.GI == in.GI })
	if i < 0 {
		// The id of what a create returned was written down before it got a compute instance.
		return Own{in.Place, in.GI, -1, ""}, j.was(plan.CreateGI, in.Place, -1) && len(in.CIs) == 0
	}
	m := j.Mine[i]
	switch {
	case len(in.CIs) == 0:
		return Own{in.Place, in.GI, -1, ""}, m.CI < 0 || j.was(plan.DestroyCI, in.Place, in.GI)
	case len(in.CIs) > 1 || !in.CIs[0].Whole:
		return Own{}, false // somebody has divided it
	case m.CI < 0:
		return Own{in.Place, in.GI, in.CIs[0].CI, in.CIs[0].UUID}, j.was(plan.CreateCI, in.Place, in.GI)
	}
	return Own{in.Place, in.GI, in.CIs[0].CI, in.CIs[0].UUID}, m.UUID == in.CIs[0].UUID
}

// was reports whether the call that was under way is this one.
func (j journal) was(op plan.Op, at mig.Place, gi int) bool {
	if j.Change == nil || j.Change.Doing == nil {
		return false
	}
	d := j.Change.Doing
	return d.Op == op.String() && d.mig() == at && d.GI == gi
}

// next is the call that brings Kerf's instances nearer to the places that are wanted, false when they are there. What
// is not wanted goes first, since it may be in the way.
func next(mine []Own, wanted []mig.Place) (plan.Step, bool) {
	for _, o := range mine {
		switch {
		case slices.Contains(wanted, o.Place):
		case o.CI >= 0:
			return plan.Step{Op: plan.DestroyCI, Place: o.Place, GI: o.GI, CI: o.CI}, true
		default:
			return plan.Step{Op: plan.DestroyGI, Place: o.Place, GI: o.GI, CI: -1}, true
		}
	}
	for _, p := range wanted {
		i := slices.IndexFunc(mine, func(o Own) bool { return o.Place == p })
		switch {
		case i < 0:
			return plan.Step{Op: plan.CreateGI, Place: p, GI: -1, CI: -1}, true
		case mine[i].CI < 0:
			return plan.Step{Op: plan.CreateCI, Place: p, GI: mine[i].GI, CI: -1}, true
		}
	}
	return plan.Step{}, false
}

func places(mine []Own) []mig.Place {
	list := make([]mig.Place, len(mine))
	for i, o := range mine {
		list[i] = o.Place
	}
	return list
}
