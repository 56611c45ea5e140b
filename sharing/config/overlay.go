// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"strconv"

	"github.com/kerf-gpu/kerf/sharing"
)

// overlay puts a request over the profile that it names.
func overlay(p Profile, asked sharing.Request) (sharing.Request, error) {
	base := p.request()
	var errs []error
	bad := func(field, value, remedy, problem string, args ...any) {
		errs = append(errs, sharing.Invalid(field, value, remedy, problem, args...))
	}
	r := asked
	if asked.Kind == sharing.KindWhole && base.Kind != sharing.KindWhole {
		bad("whole", "", "leave it out, or name another profile", "is not what profile %q gives: a piece of a GPU", p.Name)
	}
	r.Kind = base.Kind
	switch {
	case asked.Memory == 0:
		r.Memory = base.Memory
	case base.Memory == 0:
		bad("memory", asked.Memory.String(), "leave it out", "cannot narrow profile %q, which does not say how much memory it gives", p.Name)
	case asked.Memory > base.Memory:
		bad("memory", asked.Memory.String(), "ask for at most "+base.Memory.String(), "is more than the %s of profile %q", base.Memory, p.Name)
	}
	switch {
	case asked.Percent == 0:
		r.Percent = base.Percent
	case base.Percent == 0:
		bad("percent", asked.Percent.String(), "leave it out", "is more than profile %q gives, which books no share of compute", p.Name)
	case asked.Percent > base.Percent:
		bad("percent", asked.Percent.String(), "ask for at most "+base.Percent.String(), "is more than the %s of profile %q", base.Percent, p.Name)
	}
	switch {
	case asked.GPUs == 0:
		r.GPUs = base.GPUs
	case asked.GPUs > base.GPUs:
		bad("gpus", strconv.Itoa(asked.GPUs), "ask for at most "+strconv.Itoa(base.GPUs), "is more than the %d of profile %q", base.GPUs, p.Name)
	}
	r.ProfileModels, r.Burst = base.ProfileModels, base.Burst
	r.MinLevel = max(asked.MinLevel, base.MinLevel)
	if r.Place == sharing.PlaceDefault {
		r.Place = base.Place
	}
	return r, errors.Join(errs...)
}
