// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import "errors"

// draft is a request while its inputs are being read. It collects all errors, so that the user can fix them at once.
type draft struct {
	Request
	fields Fields
	errs   []error
}

// note keeps an error, if there is one.
func (d *draft) note(err error) {
	if err != nil {
		d.errs = append(d.errs, err)
	}
}

// choice reads what narrows the choice; empty inputs say nothing.
func (d *draft) choice(models, uuids []string, level, place, profile string) {
	var err error
	d.Models = append(d.Models, models...)
	for _, s := range uuids {
		id, err := ParseGPUID(d.fields.UUIDs, s)
		if err != nil {
			d.note(err)
			continue
		}
		d.UUIDs = append(d.UUIDs, id)
	}
	if level != "" {
		d.MinLevel, err = ParseLevel(d.fields.MinLevel, level)
		d.note(err)
	}
	if place != "" {
		d.Place, err = ParseSpread(d.fields.Place, place)
		d.note(err)
	}
	d.Profile = profile
}

// finish adds the errors that only the complete request shows. It leaves out errors that only follow from an
// unreadable input.
func (d *draft) finish() (Request, error) {
	unread := len(d.errs) > 0
	if d.GPUs == 0 && d.Profile == "" {
		d.GPUs = 1
	}
	whole := d.Request
	if unread && whole.Kind == KindShared && whole.Memory == 0 && whole.Percent == 0 {
		whole.Percent = Percent(max(whole.GPUs, 1)) //nolint:gosec // at most MaxGPUs+1, and only looked at
	}
	if unread {
		whole.UUIDs = nil
	}
	d.note(whole.Check(d.fields))
	if len(d.errs) > 0 {
		return Request{}, errors.Join(flatten(d.errs)...)
	}
	return d.Request, nil
}

// flatten unwraps joined errors, so that a join of joins reads as one list.
func flatten(errs []error) []error {
	var out []error
	for _, err := range errs {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			out = append(out, flatten(joined.Unwrap())...)
			continue
		}
		out = append(out, err)
	}
	return out
}

// Flags are the values of kerf's flags as they were typed. Empty means not given: a command line that was
// given an empty value refuses it before.
type Flags struct {
	Memory, Percent, GPUs, MIG string
	Models, UUIDs              []string
	Level, Placement, Profile  string
}

// FlagFields are the names of the flags, for errors.
func FlagFields() Fields {
	return Fields{
		Memory: "--memory", Percent: "--percent", GPUs: "--gpus", Whole: "--gpus", MIG: "--mig", Models: "--gpu-model",
		UUIDs: "--gpu-uuid", MinLevel: "--min-enforcement", Place: "--placement-policy", Profile: "--profile",
	}
}

// RequestFromFlags reads what a user typed. --gpus alone requests whole GPUs. With --memory or --percent it divides
// these totals, and with --profile it narrows the profile. The error joins a *FieldError for each problem.
func RequestFromFlags(in Flags) (Request, error) {
	d := draft{fields: FlagFields()}
	var err error
	if in.Memory != "" {
		d.Memory, err = ParseSize(d.fields.Memory, in.Memory)
		d.note(err)
	}
	if in.Percent != "" {
		d.Percent, err = ParsePercent(d.fields.Percent, in.Percent)
		d.note(err)
	}
	if in.GPUs != "" {
		d.GPUs, err = ParseGPUs(d.fields.GPUs, in.GPUs)
		d.note(err)
		if in.Memory == "" && in.Percent == "" && in.Profile == "" && in.MIG == "" {
			d.Kind = KindWhole
		}
	}
	if in.MIG != "" {
		d.Kind, d.MIG = KindMIG, in.MIG
	}
	d.choice(in.Models, in.UUIDs, in.Level, in.Placement, in.Profile)
	return d.finish()
}

// Amounts are the fields of the node API's ReserveRequest. Zero and empty mean not given.
type Amounts struct {
	Memory                   uint64 // bytes
	Percent                  uint32
	GPUs                     uint32
	Whole                    bool
	MIG                      string
	Models, UUIDs            []string
	MinLevel, Place, Profile string
}

// AmountFields are the names of the node API's fields, for errors.
func AmountFields() Fields {
	return Fields{
		Memory: "memory_bytes", Percent: "percent", GPUs: "gpu_count", Whole: "whole", MIG: "mig", Models: "models",
		UUIDs:    "uuids",
		MinLevel: "min_enforcement", Place: "placement_policy", Profile: "profile",
	}
}

// RequestFromAmounts reads a ReserveRequest. Whole with gpu_count 0 is one whole GPU. The error joins a *FieldError for
// each problem.
func RequestFromAmounts(in Amounts) (Request, error) {
	d := draft{fields: AmountFields()}
	d.Memory, d.Percent = Bytes(in.Memory), Percent(in.Percent)
	d.GPUs = int(min(in.GPUs, MaxGPUs+1)) // more than MaxGPUs is refused, whatever the size of int
	if in.Whole {
		d.Kind = KindWhole
	}
	if in.MIG != "" {
		if in.Whole {
			d.note(Invalid(d.fields.Whole, "", "leave out one of them", "cannot be given together with %s",
				d.fields.MIG))
		}
		d.Kind, d.MIG = KindMIG, in.MIG
	}
	d.choice(in.Models, in.UUIDs, in.MinLevel, in.Place, in.Profile)
	return d.finish()
}

// Amounts returns the fields of a GrantRequest that RequestFromAmounts reads back as r. The profile's own
// globs stay behind: the node adds them again.
func (r Request) Amounts() Amounts {
	a := Amounts{
		Memory: uint64(r.Memory), Percent: uint32(r.Percent), GPUs: uint32(max(0, min(r.GPUs, MaxGPUs+1))),
		Whole: r.Kind == KindWhole, MIG: r.MIG, Profile: r.Profile,
	}
	a.Models = append(a.Models, r.Models...)
	for _, id := range r.UUIDs {
		a.UUIDs = append(a.UUIDs, string(id))
	}
	if r.MinLevel != LevelUnknown {
		a.MinLevel = r.MinLevel.String()
	}
	if r.Place != PlaceDefault {
		a.Place = r.Place.String()
	}
	return a
}
