// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
)

// Code says what keeps a GPU from answering a request.
type Code uint8

// The codes, by what would have to change: another GPU, a stronger backend, a larger GPU, its health, the grants on it.
const (
	Fits Code = iota
	// OtherModel, OtherUUID and OtherInstance: the request names other GPUs, or takes no share of a MIG instance.
	OtherModel
	OtherUUID
	OtherInstance
	// InMIGMode: the GPU gives MIG instances now.
	InMIGMode
	// NoMemory: all memory of the GPU is reserved, or none is known.
	NoMemory
	// OfSystem: the GPU uses the system's memory, of which NVML reports no amount, and a share is requested.
	OfSystem
	// Unenforced: no backend enforces shares of the GPU, and the request does not say that it needs none.
	Unenforced
	// BelowRequest and BelowPool: shares have a lower level than the request demands, or than the pool's rules do.
	BelowRequest
	BelowPool
	// Contested: the GPU's memory is granted more than once, and the request demands a level that excludes that.
	Contested
	// TooSmall: the GPU has less memory in all, or the percentage of it is less than sharing.MinShare.
	TooSmall
	NotHealthy
	Cordoned
	// NotWhole and NotShared: the GPU is not given in this way now.
	NotWhole
	NotShared
	// InUse: a whole GPU is asked for, and grants are on this one.
	InUse
	// TooManyShares: as many grants share the GPU as its pool allows.
	TooManyShares
	// NoCapacity: too little memory or compute is free.
	NoCapacity
	// NoInstance: the GPU gives no such MIG instance now.
	NoInstance
)

// Verdict says whether a GPU answers a request.
type Verdict struct {
	Code Code
	// Text is a clause with the amounts: "4GiB free of 79GiB, 10GiB requested". It is empty if the GPU fits.
	Text string
	// Never is true if the end of grants on the GPU cannot change the verdict.
	Never bool
}

// Fits reports whether the GPU answers the request.
func (v Verdict) Fits() bool { return v.Code == Fits }

// unknown reports whether only an enforcement level that is unknown now stands in the way.
func (v Verdict) unknown() bool { return Unenforced <= v.Code && v.Code <= BelowPool && !v.Never }

func no(code Code, format string, args ...any) Verdict {
	return Verdict{Code: code, Text: fmt.Sprintf(format, args...)}
}

func never(code Code, format string, args ...any) Verdict {
	return Verdict{Code: code, Text: fmt.Sprintf(format, args...), Never: true}
}

// Fit says whether a GPU answers the part of a request that falls on one GPU, and why not. It looks first at what the
// end of grants does not change. The request is valid and complete, and not for a MIG instance.
func Fit(g GPUState, r sharing.Request) Verdict {
	if g.GPU.Health != sharing.HealthOK && g.GPU.Memory == 0 && !g.GPU.SystemMemory {
		return ill(g.GPU) // nothing is known of it, so nothing is ruled out
	}
	if v := suits(g, r); !v.Fits() {
		return v
	}
	if v := Open(g.GPU); !v.Fits() {
		return v
	}
	if g.GPU.MIG {
		return no(InMIGMode, "is in MIG mode, which it leaves when it is idle")
	}
	if v := level(g, r); !v.Fits() {
		return v
	}
	switch {
	case r.Kind == sharing.KindWhole && g.NoWhole != "":
		return no(NotWhole, "%s", g.NoWhole)
	case r.Kind != sharing.KindWhole && g.Shut != "":
		return no(NotShared, "%s", g.Shut)
	case r.Kind != sharing.KindWhole && g.MaxShares > 0 && g.ShareCount >= g.MaxShares:
		return no(TooManyShares, "is shared by %d already, the most that its pool allows (maxSharesPerGPU)",
			g.ShareCount)
	}
	return CheckCapacity(g, r.On(g.GPU))
}

// suits looks only at what stays when all grants are gone and the GPU is healthy.
func suits(g GPUState, r sharing.Request) Verdict {
	if v := Named(g.GPU, r); !v.Fits() {
		return v
	}
	switch {
	case r.InstanceMismatch(g.GPU.Ref()) != "":
		return never(OtherInstance, "%s", r.InstanceMismatch(g.GPU.Ref()))
	case g.GPU.MIG && !g.ModeSwitchable:
		return never(InMIGMode, "is in MIG mode, which gives no fractions and is not given whole")
	case g.GPU.SystemMemory && r.Kind != sharing.KindWhole:
		return never(OfSystem, "%s", sharing.NoShares)
	case g.GPU.Usable() == 0 && !g.GPU.SystemMemory:
		return never(NoMemory, "has no usable memory")
	case r.Kind == sharing.KindWhole:
		return Verdict{}
	}
	if v := level(g, r); v.Never {
		return v
	}
	if g.GPU.Contested() && r.MinLevel >= sharing.LevelDriver {
		return never(Contested, "gives its memory %s times over, so that neighbors can take what a share has not "+
			"used yet, and %s is required", g.GPU.Overcommit.Memory, r.MinLevel)
	}
	f := r.On(g.GPU)
	if f.Memory < sharing.MinShare {
		return never(TooSmall, "%s of its %s is less than %s", f.Percent, g.GPU.Usable(), sharing.MinShare)
	}
	return size(g.GPU, f)
}

// Named says whether the request's models and UUIDs let it use a GPU.
func Named(g sharing.GPU, r sharing.Request) Verdict {
	switch {
	case r.Admits(g):
		return Verdict{}
	case !sharing.MatchModels(r.Models, g.Model):
		return never(OtherModel, "its model is not one of those requested (%q)%s", r.Models,
			sharing.PartOfName(r.Models, g.Model))
	case !sharing.MatchModels(r.ProfileModels, g.Model):
		return never(OtherModel, "its model is not one of profile %q (%q)%s", r.Profile, r.ProfileModels,
			sharing.PartOfName(r.ProfileModels, g.Model))
	}
	return never(OtherUUID, "is not one of the UUIDs requested")
}

func size(g sharing.GPU, f sharing.Share) Verdict {
	if f.Memory > g.Usable() {
		return never(TooSmall, "has %s in all, %s requested", g.Usable(), f.Memory)
	}
	return Verdict{}
}

// Open says whether a GPU takes new grants, whatever they ask for.
func Open(g sharing.GPU) Verdict {
	switch {
	case g.Health != sharing.HealthOK:
		return ill(g)
	case g.Cordoned != "":
		return no(Cordoned, "is cordoned: %s", g.Cordoned)
	}
	return Verdict{}
}

func ill(g sharing.GPU) Verdict {
	if g.HealthReason == "" {
		return no(NotHealthy, "is %s", g.Health)
	}
	return no(NotHealthy, "is %s: %s", g.Health, g.HealthReason)
}

// CheckCapacity says whether a GPU has capacity for a share in addition to its grants. It is the last part of Fit, and
// the ledger calls it again when it reserves the share.
func CheckCapacity(g GPUState, f sharing.Share) Verdict {
	if v := size(g.GPU, f); !v.Fits() {
		return v
	}
	switch {
	case f.Whole && g.GPU.SystemMemory && (g.InUse || g.FreePercent < sharing.FullGPU):
		return no(InUse, "is in use, the whole GPU requested")
	case f.Whole && (g.InUse || g.FreeMemory < g.GPU.Usable() || g.FreePercent < sharing.FullGPU):
		return no(InUse, "is in use: %s free of %s, the whole GPU requested", g.FreeMemory, g.GPU.Usable())
	case f.Whole:
		return Verdict{}
	case f.Memory > g.FreeMemory && f.Percent > g.FreePercent:
		return no(NoCapacity, "%s and %s free of %s%s, %s and %s requested", g.FreeMemory, g.FreePercent,
			g.GPU.Bookable(),
			burstText(g), f.Memory, f.Percent)
	case f.Memory > g.FreeMemory:
		return no(NoCapacity, "%s free of %s%s, %s requested", g.FreeMemory, g.GPU.Bookable(), burstText(g), f.Memory)
	case f.Percent > g.FreePercent:
		return no(NoCapacity, "%s of compute free, %s requested", g.FreePercent, f.Percent)
	}
	return Verdict{}
}

// burstText names the memory that returns when grants stop using their burst memory.
func burstText(g GPUState) string {
	if g.Burst == 0 {
		return ""
	}
	return fmt.Sprintf(" and %s used as burst memory by other grants", g.Burst)
}

// Give narrows what the GPU gives by its pool's rules: to shares, to the whole GPU, or to neither. In what way it is
// given is said by how, which is empty where the GPU is left to others. A reason that is there already stays for
// shares.
func (g *GPUState) Give(how string, shares, whole bool) {
	why := "gives " + how + " alone, by its pool's rules"
	if how == "" {
		why = "is left to others by its pool's rules"
	}
	if !shares && g.Shut == "" {
		g.Shut = why
	}
	if !whole {
		g.NoWhole = why
	}
}

// Least is the level that a share for the request must have on this GPU. It is never LevelUnknown.
func (g GPUState) Least(r sharing.Request) sharing.Level {
	return sharing.LeastOfShare(r.MinLevel, g.MinLevel)
}

// ShareLevel is the strongest level of Levels that a share can have; LevelUnknown if there is none.
func (g GPUState) ShareLevel() sharing.Level { return sharing.ShareLevel(g.Levels) }

// level says why a share of g has too low a level for r. A level that is unknown now rules nothing out for ever.
func level(g GPUState, r sharing.Request) Verdict {
	best := g.ShareLevel()
	if r.Kind == sharing.KindWhole || g.GPU.MIG || best.AtLeast(g.Least(r)) {
		return Verdict{}
	}
	why, unknown := "", best == sharing.LevelUnknown
	if g.LevelReason != "" {
		why = " (" + g.LevelReason + ")"
	}
	v := Verdict{Never: !unknown}
	switch demanded := max(r.MinLevel, g.MinLevel) != sharing.LevelUnknown; {
	case !demanded && unknown:
		v.Code, v.Text = Unenforced, fmt.Sprintf("the enforcement level of its shares is unknown%s; %s", why,
			sharing.AllowUnenforced)
	case !demanded:
		v.Code, v.Text = Unenforced, fmt.Sprintf("no backend enforces shares of this GPU%s; %s", why,
			sharing.AllowUnenforced)
	case !best.AtLeast(r.MinLevel) && r.MinLevel >= sharing.LevelHardware:
		v = never(BelowRequest,
			"a share here can be capped at level %s at most, %s required: request a whole GPU", best,
			r.MinLevel)
	case !best.AtLeast(r.MinLevel):
		v.Code, v.Text = BelowRequest, fmt.Sprintf(
			"a share here can be capped at level %s at most, %s required%s", best, r.MinLevel, why)
	default:
		v.Code, v.Text = BelowPool, fmt.Sprintf(
			"a share here can be capped at level %s at most, and its pool's rules demand %s%s", best,
			g.MinLevel, why)
	}
	return v
}
