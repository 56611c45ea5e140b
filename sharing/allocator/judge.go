// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// verdict says whether a GPU fits a request.
type verdict struct {
	// reason is empty when it fits; else it says why not, with the numbers.
	reason string
	// never is true when the reason stands whatever is given back.
	never bool
	// unknown is true when the enforcement level of a share is not known now.
	unknown bool
}

func no(format string, args ...any) verdict { return verdict{reason: fmt.Sprintf(format, args...)} }

func never(format string, args ...any) verdict {
	return verdict{reason: fmt.Sprintf(format, args...), never: true}
}

// judge says why g does not fit r, what can never be first.
func judge(g GPUState, r sharing.Request) verdict {
	sick := g.GPU.Health != sharing.HealthOK
	if sick && g.GPU.Memory == 0 {
		return ill(g.GPU) // nothing is known of it, so nothing is ruled out
	}
	if v := judgeEver(g, r); v.reason != "" {
		return v
	}
	if sick {
		return ill(g.GPU)
	}
	if g.GPU.MIG {
		return no("is in MIG mode, which it leaves when it is idle")
	}
	if g.GPU.Cordoned != "" {
		return no("is cordoned: %s", g.GPU.Cordoned)
	}
	if v := judgeLevel(g, r); v.reason != "" {
		return v
	}
	if r.Kind == sharing.KindWhole {
		if g.NoWhole != "" {
			return no("%s", g.NoWhole)
		}
		if g.Held || g.FreeMemory < g.GPU.Usable() || g.FreePercent < sharing.FullGPU {
			return no("is in use: %s free of %s, the whole GPU asked", g.FreeMemory, g.GPU.Usable())
		}
		return verdict{}
	}
	if g.Shut != "" {
		return no("%s", g.Shut)
	}
	if g.MaxSharers > 0 && g.Sharers >= g.MaxSharers {
		return no("is shared by %d already, the most that its pool allows (sharers)", g.Sharers)
	}
	f := r.On(g.GPU)
	switch {
	case f.Memory > g.FreeMemory && f.Percent > g.FreePercent:
		return no("%s and %s free of %s%s, %s and %s asked", g.FreeMemory, g.FreePercent, g.GPU.Bookable(), lent(g), f.Memory, f.Percent)
	case f.Memory > g.FreeMemory:
		return no("%s free of %s%s, %s asked", g.FreeMemory, g.GPU.Bookable(), lent(g), f.Memory)
	case f.Percent > g.FreePercent:
		return no("%s of compute free, %s asked", g.FreePercent, f.Percent)
	}
	return verdict{}
}

// lent tells of memory that comes back when grants that were lent it use it no longer.
func lent(g GPUState) string {
	if g.Lent == 0 {
		return ""
	}
	return fmt.Sprintf(" and %s lent beyond their guarantee to grants that use it", g.Lent)
}

func ill(g sharing.GPU) verdict {
	if g.HealthReason == "" {
		return no("is %s", g.Health)
	}
	return no("is %s: %s", g.Health, g.HealthReason)
}

// judgeEver looks only at what stays when all claims are gone and the GPU is healthy.
func judgeEver(g GPUState, r sharing.Request) verdict {
	switch {
	case !sharing.MatchModels(r.Models, g.GPU.Model):
		return never("its model is not one of those asked for (%q)%s", r.Models, sharing.PartOfName(r.Models, g.GPU.Model))
	case !sharing.MatchModels(r.ProfileModels, g.GPU.Model):
		return never("its model is not one of profile %q (%q)%s", r.Profile, r.ProfileModels, sharing.PartOfName(r.ProfileModels, g.GPU.Model))
	case !r.Admits(g.GPU):
		return never("is not one of the UUIDs asked for")
	case r.WhyNotPart(g.GPU.UUID) != "":
		return never("%s", r.WhyNotPart(g.GPU.UUID))
	case g.GPU.MIG && !g.Turns:
		return never("is in MIG mode, which gives no fractions and is not given whole")
	case g.GPU.Usable() == 0:
		return never("has no usable memory")
	case r.Kind == sharing.KindWhole:
		return verdict{}
	}
	if v := judgeLevel(g, r); v.never {
		return v
	}
	if g.GPU.Contested() && r.MinLevel >= sharing.LevelDriver {
		return never("gives its memory %s times over, so that neighbours can take what a fragment has not used yet, and %s is demanded", g.GPU.Overcommit.Memory, r.MinLevel)
	}
	f := r.On(g.GPU)
	switch {
	case f.Memory > g.GPU.Usable():
		return never("has %s in all, %s asked", g.GPU.Usable(), f.Memory)
	case f.Memory < sharing.MinFragment:
		return never("%s of its %s is less than %s", f.Percent, g.GPU.Usable(), sharing.MinFragment)
	}
	return verdict{}
}
