// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

func (r *GPURule) fields() fields {
	s := &r.Settings
	return named(r, fields{
		texts(&r.Models, "Globs over the GPU's model, `!` in front for not.").like("*H100*").def("every model"),
		indexes(&r.Indexes, "NVML indexes.").def("all"),
		uuids(&r.UUIDs),
		word(&r.MIG, ParseMIGAble, "Whether GPUs are meant that can be put in MIG mode, or those that cannot.", MIGAny, MIGCapable, MIGIncapable).def("any"),
		flag(&s.Exclude, "Leaves the GPUs to another plugin, or to nobody: Kerf neither offers nor locks nor watches them.").def("false"),
		word(&s.Mode, parseRuleMode, "What the GPUs give, to pods and processes alike.", ModeShared, ModeWhole, ModeMIG).def("what the pool offers"),
		ruleBackendsField(&s.Backends),
		word(&s.MinLevel, parseRuleLevel, "The least enforcement level of every fraction of the GPUs, not below the pool's; what cannot be held so strongly gets none.", ruleLevels()...).def("no more than the pool's"),
		sharersField(&s.Sharers, "the pool's"),
		reserveField(&s.MemoryReserve, "the pool's"),
		overcommitField(&s.Overcommit, "the pool's"),
		wattsField(&s.PowerLimitWatts, "the pool's"),
		word(&s.TimeSlice, sharing.ParseTimeSlice, "In place of the pool's.", sharing.TimeSlices()...).def("the pool's"),
	})
}

// parseRuleMode reads a mode; a GPU that gives all that its pool offers has no rule for it.
func parseRuleMode(field, s string) (Mode, error) {
	m, err := ParseMode(field, s)
	if err != nil || m == ModeAuto {
		return ModeAuto, sharing.Invalid(field, s, "write shared, whole or mig, or leave the field out", "is not what a GPU gives")
	}
	return m, nil
}

func sharersField(to *int, def string) field {
	return whole(to, upTo(MaxSharers, "is not a number of sharers"), 1, MaxSharers, "The most claims that may have a fragment of one GPU at once.").def(def)
}

func reserveField(to *sharing.Bytes, def string) field {
	return size(to, "Memory of each GPU that nobody gets, beside the driver's own part.").like("2GiB").def(def)
}

func wattsField(to *int, def string) field {
	return whole(to, upTo(MaxPowerWatts, "is not a power limit"), 1, MaxPowerWatts,
		"The power limit in watts; it is set through the driver, read back, and put back as it was when it is wanted no more.").def(def)
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
		Field: Field{Doc: "UUIDs as the driver reports them.", Default: "all", Type: Type{Example: "GPU-4f2b1c9a-0d3e-4a56-8b7c-1d2e3f405162"}},
		to:    to,
		read: func(r *reader, path string, n *yaml.Node) {
			for _, s := range r.texts(path, n) {
				*to = append(*to, sharing.GPUID(s))
			}
		},
		is:    func() Type { return Type{Kind: KindList, Of: &Type{Kind: KindText}} },
		write: func() any { return *to },
	}
}
