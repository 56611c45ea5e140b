// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

// GPURule says what holds for some of a pool's GPUs. All criteria that are there must fit.
type GPURule struct {
	// Models are globs over the model, Indexes are NVML indexes, UUIDs are identities.
	Models  []string        `yaml:"model"`
	Indexes []int           `yaml:"index"`
	UUIDs   []sharing.GPUID `yaml:"uuid"`
	MIG     MIGAble         `yaml:"migCapable"`
	// Settings are used in place of the pool's where they are not the zero value.
	Settings GPUSettings `yaml:",inline"`
}

// MIGAble is which GPUs are meant by what they can do.
type MIGAble uint8

// The choices.
const (
	// MIGAny: all (the default).
	MIGAny MIGAble = iota
	// MIGCapable: those that can be put in MIG mode.
	MIGCapable
	// MIGIncapable: those that cannot.
	MIGIncapable
)

// String returns "any", "capable" or "incapable".
func (m MIGAble) String() string {
	switch m {
	case MIGCapable:
		return "capable"
	case MIGIncapable:
		return "incapable"
	case MIGAny:
	}
	return "any"
}

// ParseMIGAble reads "any", "capable" or "incapable"; field names the input for the error, a *sharing.FieldError.
func ParseMIGAble(field, s string) (MIGAble, error) {
	for _, m := range []MIGAble{MIGAny, MIGCapable, MIGIncapable} {
		if m.String() == s {
			return m, nil
		}
	}
	return MIGAny, sharing.Invalid(field, s, "write any, capable or incapable", "is not a choice of GPUs")
}

// GPUSettings are what holds for one GPU.
type GPUSettings struct {
	// Excluded leaves the GPU to others: it is not looked at, not locked and not offered.
	Excluded bool `yaml:"excluded" json:"exclude,omitempty"`
	// Mode is what the GPU gives; ModeAuto is what the pool offers.
	Mode Mode `yaml:"mode" json:"mode,omitempty"`
	// MaxSharesPerGPU is the maximum number of grants with a share of it; 0 for no bound.
	MaxSharesPerGPU int `yaml:"maxSharesPerGPU" json:"sharers,omitempty"`
	// MemoryReserve is memory that no grant gets, in addition to the driver's own part.
	MemoryReserve sharing.Bytes `yaml:"memoryReserve" json:"memoryReserve,omitempty"`
	// PowerLimitWatts is set on the GPU; 0 leaves it as it is.
	PowerLimitWatts int `yaml:"powerLimitWatts" json:"powerLimitWatts,omitempty"`
	// Overcommit is how much more than the GPU has is given in fractions; of each factor 0 is what there is.
	Overcommit sharing.Overcommit `yaml:"overcommit" json:"overcommit,omitzero"`
	// TimeSlice and ComputeMode are set on the GPU; AsIs leaves them as they are.
	TimeSlice   sharing.TimeSlice   `yaml:"timeSlice" json:"timeSlice,omitempty"`
	ComputeMode sharing.ComputeMode `json:"computeMode,omitempty"`
	// FrontEnd advertises the GPU. It is the pool's: no rule sets it.
	FrontEnd sharing.FrontEnd `json:"frontend,omitempty"`
	// Backends are used for fractions of it whatever profile and pool list; empty leaves it to them.
	Backends BackendList `yaml:"backends" json:"backends,omitempty"`
	// MinLevel is demanded of every fraction of it, besides what request, profile and pool demand; LevelUnknown is no
	// more.
	MinLevel sharing.Level `yaml:"minEnforcement" json:"minLevel,omitempty"`
}

// The bounds of what settings say.
const (
	MaxShares     = 1000
	MaxPowerWatts = 10_000
)

// MinLevelOf is what pool and rules demand of shares of a GPU with these settings; LevelUnknown where they say nothing.
func (p Pool) MinLevelOf(s GPUSettings) sharing.Level { return max(p.MinLevel, s.MinLevel) }

// AllowsMode is what the nodes of the pool may offer: its own mode, and those of its rules.
func (p Pool) AllowsMode(kind func(Mode) bool) bool {
	return kind(p.Mode) || slices.ContainsFunc(p.GPURules, func(r GPURule) bool {
		return r.Settings.Mode != ModeAuto &&
			kind(r.Settings.Mode)
	})
}

func (r GPURule) clone() GPURule {
	r.Models, r.Indexes, r.UUIDs = slices.Clone(r.Models), slices.Clone(r.Indexes), slices.Clone(r.UUIDs)
	return r
}

func cloneRules(list []GPURule) []GPURule {
	var out []GPURule
	for _, r := range list {
		out = append(out, r.clone())
	}
	return out
}

func (c *checker) gpuRules(path string, p Pool) {
	c.amounts(path, p.MaxSharesPerGPU, p.PowerLimitWatts)
	c.overcommit(path+".overcommit", p.Overcommit, p)
	for i, r := range p.GPURules {
		here := at(path+".gpuRules", i)
		for k, g := range r.Models {
			if err := sharing.CheckGlob(at(here+".model", k), g); err != nil {
				c.all(err)
			}
		}
		for k, n := range r.Indexes {
			if n < 0 || n > maxGPUIndex || slices.Index(r.Indexes, n) < k {
				c.bad(at(here+".index", k), strconv.Itoa(n), "write each GPU's index once, from 0",
					"is not an index, or stands twice")
			}
		}
		for k, id := range r.UUIDs {
			if _, err := sharing.ParseGPUID(at(here+".uuid", k), string(id)); err != nil {
				c.all(err)
			}
		}
		s := r.Settings
		c.amounts(here, s.MaxSharesPerGPU, s.PowerLimitWatts)
		c.overcommit(here+".overcommit", s.Overcommit, p)
		c.ruleBackends(here, s, p)
		switch {
		case r.MIG > MIGIncapable || s.Mode > ModeMIG || s.TimeSlice > sharing.TimeSliceLong ||
			s.ComputeMode != sharing.ComputeModeAsIs || s.FrontEnd != sharing.FrontEndDevicePlugin:
			c.bad(here, "", "use the values of this package", "has a word that is none")
		case s == GPUSettings{}:
			c.bad(here, "", "write excluded, mode, backends, minEnforcement, maxSharesPerGPU, memoryReserve, "+
				"overcommit, powerLimitWatts or timeSlice", "changes nothing")
		case s.Excluded && s != GPUSettings{Excluded: true}:
			c.bad(here+".excluded", "", "leave the other settings out",
				"leaves the GPUs to others, and settings follow")
		}
	}
}

func (c *checker) amounts(path string, shares, watts int) {
	if shares < 0 || shares > MaxShares {
		c.bad(path+".maxSharesPerGPU", strconv.Itoa(shares), "write 1 to "+strconv.Itoa(MaxShares),
			"is not a number of shares")
	}
	if watts < 0 || watts > MaxPowerWatts {
		c.bad(path+".powerLimitWatts", strconv.Itoa(watts), "write 1 to "+strconv.Itoa(MaxPowerWatts),
			"is not a power limit")
	}
}

func (r *GPURule) fields() fields {
	s := &r.Settings
	return named(r, fields{
		texts(&r.Models, "Globs for the GPU model. `!` in front excludes.").like("*H100*").def("every model"),
		indexes(&r.Indexes, "NVML indexes.").def("all"),
		uuids(&r.UUIDs),
		word(&r.MIG, ParseMIGAble, "Selects GPUs that support MIG, or those that do not.", MIGAny, MIGCapable,
			MIGIncapable).def("any"),
		flag(&s.Excluded, "Leaves the GPUs to another device plugin. Kerf does not offer, lock or check them.").def(
			"false").rename("exclude"),
		word(&s.Mode, parseRuleMode, "What the GPUs offer to pods and processes.", ModeShared, ModeWhole,
			ModeMIG).def("what the pool offers"),
		ruleBackendsField(&s.Backends),
		word(&s.MinLevel, parseRuleLevel, "The lowest enforcement level of each share of these GPUs, at least that "+
			"of the pool. Kerf rejects a share that cannot reach it.",
			ruleLevels()...).def("no more than the pool's").rename(
			"minEnforcement", sharing.OldLevelUserspace+"="+sharing.LevelUserspace.String()),
		maxSharesField(&s.MaxSharesPerGPU, "the pool's"),
		reserveField(&s.MemoryReserve, "the pool's"),
		overcommitField(&s.Overcommit, "the pool's"),
		wattsField(&s.PowerLimitWatts, "the pool's"),
		word(&s.TimeSlice, sharing.ParseTimeSlice, "Replaces the pool's.", sharing.TimeSlices()...).def("the pool's"),
	})
}

// parseRuleMode reads a mode; a GPU that gives all that its pool offers has no rule for it.
func parseRuleMode(field, s string) (Mode, error) {
	m, err := ParseMode(field, s)
	if err != nil || m == ModeAuto {
		return ModeAuto, sharing.Invalid(field, s, "write shared, whole or mig, or leave the field out",
			"is not what a GPU gives")
	}
	return m, nil
}

func maxSharesField(to *int, def string) field {
	return whole(to, upTo(MaxShares, "is not a number of shares"), 1, MaxShares,
		"The maximum number of grants with a share of one GPU.").def(def).rename("sharers")
}

func reserveField(to *sharing.Bytes, def string) field {
	return size(to, "Memory of each GPU that Kerf never grants, in addition to what the driver reserves.").like(
		"2GiB").def(def)
}

func wattsField(to *int, def string) field {
	return whole(to, upTo(MaxPowerWatts, "is not a power limit"), 1, MaxPowerWatts,
		"The power limit in watts. Kerf sets it, reads it back, and restores the earlier limit "+
			"when the field goes.").def(def)
}

func upTo(most int, problem string) func(field, s string) (int, error) {
	return func(field, s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > most {
			return 0, sharing.Invalid(field, s, "write a whole number from 1 to "+strconv.Itoa(most), "%s", problem)
		}
		return n, nil
	}
}

func uuids(to *[]sharing.GPUID) field {
	return field{
		Field: Field{Doc: "UUIDs as the driver reports them.", Default: "all",
			Type: Type{Example: "GPU-4f2b1c9a-0d3e-4a56-8b7c-1d2e3f405162"}},
		to: to,
		read: func(r *reader, path string, n *yaml.Node) {
			for _, s := range r.texts(path, n) {
				*to = append(*to, sharing.GPUID(s))
			}
		},
		is:    func() Type { return Type{Kind: KindList, Of: &Type{Kind: KindText}} },
		write: func() any { return *to },
	}
}
