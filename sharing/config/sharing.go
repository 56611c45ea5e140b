// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

// Mode says which of Kerf's resources a pool's nodes advertise to Kubernetes. A stock scheduler counts each
// resource by itself and would add up what only fits apart, so that without kerf-scheduler a pool advertises
// one kind. It has no meaning for processes of their own.
type Mode uint8

// The modes.
const (
	// ModeAuto: fractions, whole GPUs, and MIG instances (the default); idle GPUs go in and out of MIG mode as demand
	// asks, see Pool.AutoMIGMode. With a stock scheduler a pod may then have to wait on its node, and says so.
	ModeAuto Mode = iota
	// ModeShared: fractions alone.
	ModeShared
	// ModeWhole: whole GPUs alone.
	ModeWhole
	// ModeMIG: MIG instances alone. GPUs that can do MIG are put in MIG mode where no layout says otherwise.
	ModeMIG
)

// String returns "auto", "shared", "whole" or "mig".
func (m Mode) String() string {
	switch m {
	case ModeShared:
		return "shared"
	case ModeWhole:
		return "whole"
	case ModeMIG:
		return "mig"
	case ModeAuto:
	}
	return "auto"
}

// Shared reports whether fractions are advertised.
func (m Mode) Shared() bool { return m == ModeAuto || m == ModeShared }

// Whole reports whether whole GPUs are advertised.
func (m Mode) Whole() bool { return m == ModeAuto || m == ModeWhole }

// MIG reports whether MIG instances are advertised.
func (m Mode) MIG() bool { return m == ModeAuto || m == ModeMIG }

// ParseMode reads "auto", "shared", "whole" or "mig"; field names the input for the error, a *sharing.FieldError.
func ParseMode(field, s string) (Mode, error) {
	for _, m := range []Mode{ModeAuto, ModeShared, ModeWhole, ModeMIG} {
		if m.String() == s {
			return m, nil
		}
	}
	return ModeAuto, sharing.Invalid(field, s, "write auto, shared, whole or mig", "is not a pool's mode")
}

// MPSDaemonScope is which grants share a control daemon of MPS, and so can disturb each other. A member can give it any
// command, and a fault of one ends all.
type MPSDaemonScope uint8

// The ways.
const (
	// MPSScopeNamespace: the pods of one namespace, and the processes of one user (the default).
	MPSScopeNamespace MPSDaemonScope = iota
	// MPSScopePool: all pods of the pool, and all its processes.
	MPSScopePool
)

// MPSComputeMode says what Kerf does with the compute mode of GPUs on which MPS enforces shares.
type MPSComputeMode uint8

// The rules for it.
const (
	// MPSComputeModeManage: EXCLUSIVE_PROCESS while one domain uses the GPU, DEFAULT while several do, and afterwards
	// what it was before (the default).
	MPSComputeModeManage MPSComputeMode = iota
	// MPSComputeModeUnchanged: Kerf leaves it as it is. Other programs can then use the GPU together with MPS.
	MPSComputeModeUnchanged
)

// String returns "manage" or "keep".
func (m MPSComputeMode) String() string {
	switch m {
	case MPSComputeModeUnchanged:
		return "keep"
	case MPSComputeModeManage:
	}
	return "manage"
}

// ParseMPSComputeMode reads "manage" or "keep"; field names the input for the error, a *sharing.FieldError.
func ParseMPSComputeMode(field, s string) (MPSComputeMode, error) {
	for _, v := range []MPSComputeMode{MPSComputeModeManage, MPSComputeModeUnchanged} {
		if v.String() == s {
			return v, nil
		}
	}
	return MPSComputeModeManage, sharing.Invalid(field, s, "write manage or keep",
		"is not a rule for the compute mode under MPS")
}

// String returns "namespace" or "pool".
func (m MPSDaemonScope) String() string {
	switch m {
	case MPSScopePool:
		return "pool"
	case MPSScopeNamespace:
	}
	return "namespace"
}

// ParseMPSDaemonScope reads "namespace" or "pool"; field names the input for the error, a *sharing.FieldError.
func ParseMPSDaemonScope(field, s string) (MPSDaemonScope, error) {
	for _, v := range []MPSDaemonScope{MPSScopeNamespace, MPSScopePool} {
		if v.String() == s {
			return v, nil
		}
	}
	return MPSScopeNamespace, sharing.Invalid(field, s, "write namespace or pool", "is not the scope of an MPS daemon")
}

// ComputePolicy says what becomes of GPU time that its owner does not use, where the preloaded library holds grants to
// their percent. MPS is always strict, and other backends share no time.
type ComputePolicy uint8

// The rules for compute.
const (
	// ComputeFair: other grants may use it, until its owner asks for it (the default).
	ComputeFair ComputePolicy = iota
	// ComputeStrict: no other grant gets it; a grant never has more than its percent.
	ComputeStrict
)

// String returns "fair" or "strict".
func (c ComputePolicy) String() string {
	switch c {
	case ComputeStrict:
		return "strict"
	case ComputeFair:
	}
	return "fair"
}

// ParseComputePolicy reads "fair" or "strict"; field names the input for the error, a *sharing.FieldError.
func ParseComputePolicy(field, s string) (ComputePolicy, error) {
	for _, c := range []ComputePolicy{ComputeFair, ComputeStrict} {
		if c.String() == s {
			return c, nil
		}
	}
	return ComputeFair, sharing.Invalid(field, s, "write strict or fair", "is not a rule for compute")
}

// parseComputeMode reads the compute modes that a pool may want.
func parseComputeMode(field, s string) (sharing.ComputeMode, error) {
	m, err := sharing.ParseComputeMode(field, s)
	if err != nil || m == sharing.ComputeModeProhibited {
		return sharing.ComputeModeAsIs, sharing.Invalid(field, s, "write default or exclusiveProcess",
			"is not a compute mode for a pool")
	}
	return m, nil
}

// compute checks what a pool says of its GPUs' compute.
func (c *checker) compute(path string, p Pool) {
	c.known(p.ComputePolicy <= ComputeStrict, path+".computePolicy", "a ComputePolicy of this package",
		"is not a rule for compute")
	c.known(p.TimeSlice <= sharing.TimeSliceLong, path+".timeSlice", "a TimeSlice of package sharing",
		"is not a time slice")
	c.known(p.MPSComputeMode <= MPSComputeModeUnchanged, path+".mpsComputeMode", "an MPSComputeMode of this package",
		"is not a rule for the compute mode under MPS")
	switch {
	case p.ComputeMode > sharing.ComputeModeExclusiveProcess:
		c.bad(path+".computeMode", "", "use ComputeModeDefault or ComputeModeExclusiveProcess",
			"is not a compute mode for a pool")
	case p.ComputeMode != sharing.ComputeModeAsIs && p.MPSComputeMode == MPSComputeModeManage &&
		slices.Contains(p.Backends, sharing.BackendMPS):
		c.bad(path+".computeMode", p.ComputeMode.String(), "leave it out, or mps, or write mpsComputeMode: keep",
			"is set by MPS itself, which backends lists")
	case p.ComputeMode == sharing.ComputeModeExclusiveProcess && p.Mode != ModeWhole:
		c.bad(path+".computeMode", p.ComputeMode.String(), "write mode: whole too, or leave it out",
			"lets one process on each GPU, which then cannot be shared")
	}
}

// overcommitField is how much more than a GPU has is given of it.
func overcommitField(to *sharing.Overcommit, def string) field {
	f := object(to, func() fields { return overcommitFields(to, def) },
		"Overcommit ratios for shares. Whole GPUs and MIG instances are never overcommitted.")
	f.Type.Example = "{compute: 2}"
	return f
}

func overcommitFields(to *sharing.Overcommit, def string) fields {
	return named(to, fields{
		factor(&to.Memory, sharing.MaxMemoryFactor,
			"The overcommit ratio of memory. Above 1, the driver can reject memory below a cap. Such a GPU gives no "+
				"burst memory, and no share to requests of level `driver` or higher.").like("1.25").def(def),
		factor(&to.Compute, sharing.MaxComputeFactor,
			"The overcommit ratio of compute. Above 1, percents can add up to more than 100, and each is worth its "+
				"part of the sum.").like("2").def(def),
	})
}

// factor is a number from 1 on with at most two digits behind the point.
func factor(to *sharing.Factor, most sharing.Factor, doc string) field {
	return field{
		Field: Field{Doc: doc},
		to:    to,
		read: func(r *reader, path string, n *yaml.Node) {
			if !r.is(path, n, yaml.ScalarNode, "a number") {
				return
			}
			if tag := n.ShortTag(); tag != "!!int" && tag != "!!float" {
				r.bad(path, n, n.Value, "write a number such as 1.25, without quotes or unit", "is not a number")
				return
			}
			*to = take(r, path, n, func(field, s string) (sharing.Factor, error) {
				return sharing.ParseFactor(field, s,
					most)
			})
		},
		is: func() Type { return Type{Kind: KindNumber, Min: "1", Max: most.String()} },
		write: func() any {
			if *to == 0 {
				return nil
			}
			return &yaml.Node{Kind: yaml.ScalarNode, Value: to.String()} // its digits: a float would round them
		},
	}
}

// overcommit checks factors, and that the pool demands nothing that they take away.
func (c *checker) overcommit(path string, o sharing.Overcommit, p Pool) {
	one := func(name string, f, most sharing.Factor) {
		if f != 0 && (f < 100 || f > most) {
			c.bad(path+"."+name, "", "write 1 to "+most.String(), "is not a factor")
		}
	}
	one("memory", o.Memory, sharing.MaxMemoryFactor)
	one("compute", o.Compute, sharing.MaxComputeFactor)
	if o.Memory.More() && p.MinLevel >= sharing.LevelDriver {
		c.bad(path+".memory", o.Memory.String(), "leave it out, or demand client or less",
			"contradicts minEnforcement %s, by which neighbours cannot take what a grant has not used yet", p.MinLevel)
	}
	if (o.Memory.More() || o.Compute.More()) && !p.AllowsMode(Mode.Shared) {
		c.bad(path, "", "leave it out", "is for fractions, and mode %s gives none", p.Mode)
	}
}

// frontEnd rejects what the DRA front end does not offer.
func (c *checker) frontEnd(path string, p Pool) {
	c.known(p.FrontEnd <= sharing.FrontEndDRA, path+".frontend", "a FrontEnd of package sharing", "is not a front end")
	if p.FrontEnd == sharing.FrontEndDRA && p.SharesMIG() {
		c.bad(path+".frontend", p.FrontEnd.String(), "write devicePlugin, or leave shared out",
			"offers no shares of MIG instances")
	}
	if p.BindingConditions && p.FrontEnd != sharing.FrontEndDRA {
		c.bad(path+".bindingConditions", "true", "leave it out, or set frontend to dra", "is only for frontend dra")
	}
}
