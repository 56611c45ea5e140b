// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"fmt"
	"strconv"
)

// Fields are the names under which the user knows the parts of a request; errors use them. Whole is the
// name under which whole GPUs are asked for.
type Fields struct {
	Memory, Percent, GPUs, Whole, MIG, Models, UUIDs, MinLevel, Place, Profile string
}

// plainFields name the parts where there is no flag, resource or document.
func plainFields() Fields {
	return Fields{
		Memory: "memory", Percent: "percent", GPUs: "gpu_count", Whole: "whole", MIG: "mig", Models: "models",
		UUIDs:    "uuids",
		MinLevel: "min_enforcement", Place: "placement_policy", Profile: "profile",
	}
}

// Validate rejects a request that no machine could answer. The error joins a *FieldError for each problem.
func (r Request) Validate() error { return r.Check(plainFields()) }

// Check is Validate with the user's own names for the fields.
func (r Request) Check(f Fields) error {
	var errs []error
	bad := func(field, value, remedy, problem string, args ...any) {
		errs = append(errs, Invalid(field, value, remedy, problem, args...))
	}
	counted := r.GPUs >= 1 && r.GPUs <= MaxGPUs
	if !counted && (r.GPUs != 0 || r.Profile == "") {
		bad(f.GPUs, strconv.Itoa(r.GPUs), gpusRemedy, "is not from 1 to %d", MaxGPUs)
	}
	switch r.Kind {
	case KindWhole:
		if r.Memory != 0 {
			bad(f.Memory, r.Memory.String(), "leave out one of them",
				"cannot be given together with %s: a whole GPU has all its memory", f.Whole)
		}
		if r.Percent != 0 {
			bad(f.Percent, r.Percent.String(), "leave out one of them",
				"cannot be given together with %s: a whole GPU has all its compute", f.Whole)
		}
	case KindShared:
		errs = append(errs, r.checkAmounts(f, counted)...)
	case KindMIG:
		errs = append(errs, r.checkMIG(f)...)
	default:
		bad("kind", strconv.Itoa(int(r.Kind)), "use KindShared, KindWhole or KindMIG", "is not a kind of request")
	}
	if r.Kind != KindMIG && r.MIG != "" {
		bad(f.MIG, r.MIG, "use KindMIG", "is of a request of another kind")
	}
	errs = append(errs, r.checkChoice(f)...)
	return errors.Join(errs...)
}

// checkAmounts checks the amounts of a shared request; counted tells that GPUs can be reckoned with.
func (r Request) checkAmounts(f Fields, counted bool) (errs []error) {
	if r.Memory == 0 && r.Percent == 0 && r.Profile == "" {
		errs = append(errs, Invalid("the request", "", fmt.Sprintf("give %s, %s or %s", f.Memory, f.Percent, f.Whole),
			"requests nothing"))
	}
	if !counted {
		return errs
	}
	n := Bytes(r.GPUs) //nolint:gosec // counted: 1 to MaxGPUs
	switch {
	case r.Memory == 0:
	case r.Memory%n != 0:
		errs = append(errs, Invalid(f.Memory, r.Memory.String(), fmt.Sprintf("write a multiple of %d bytes", r.GPUs),
			"does not divide evenly by %d GPUs", r.GPUs))
	case r.Memory/n < MinShare:
		errs = append(errs, Invalid(f.Memory, r.Memory.String(), sizeRemedy, "is less than %s per GPU", MinShare))
	}
	switch {
	case uint64(r.Percent) > uint64(FullGPU)*uint64(n):
		errs = append(errs, Invalid(f.Percent, r.Percent.String(), fmt.Sprintf("write at most %d, or request more GPUs",
			int(FullGPU)*r.GPUs),
			"is more than %d GPU%s, 100%% each", r.GPUs, plural(r.GPUs)))
	case uint64(r.Percent)%uint64(n) != 0:
		errs = append(errs, Invalid(f.Percent, r.Percent.String(), fmt.Sprintf("write a multiple of %d", r.GPUs),
			"does not divide evenly by %d GPUs", r.GPUs))
	}
	return errs
}

// checkChoice checks what narrows the choice of GPU.
func (r Request) checkChoice(f Fields) (errs []error) {
	for _, globs := range [][]string{r.Models, r.ProfileModels} {
		if len(globs) > MaxGPUs {
			errs = append(errs, Invalid(f.Models, "", "write fewer", "has more than %d patterns", MaxGPUs))
			continue
		}
		for _, g := range globs {
			if err := CheckGlob(f.Models, g); err != nil {
				errs = append(errs, err)
			}
		}
	}
	seen := make(map[GPUID]bool, len(r.UUIDs))
	for _, id := range r.UUIDs {
		same, err := ParseGPUID(f.UUIDs, string(id))
		switch {
		case err != nil:
			errs = append(errs, err)
		case same != id:
			errs = append(errs, Invalid(f.UUIDs, string(id), "write it in lower case", "is not in lower case"))
		case seen[id]:
			errs = append(errs, Invalid(f.UUIDs, string(id), "name it once", "is named twice"))
		}
		seen[id] = true
	}
	if len(r.UUIDs) > 0 && r.GPUs > len(seen) {
		errs = append(errs, Invalid(f.UUIDs, "", "name more, or request fewer GPUs",
			"names %d GPU%s where %d are requested",
			len(seen), plural(len(seen)), r.GPUs))
	}
	if r.MinLevel > LevelExclusive {
		errs = append(errs, Invalid(f.MinLevel, strconv.Itoa(int(r.MinLevel)), "use a Level of this package",
			"is not an enforcement level"))
	}
	if r.Place > PlaceSpread {
		errs = append(errs, Invalid(f.Place, strconv.Itoa(int(r.Place)), "use a Spread of this package",
			"is not a placement policy"))
	}
	if r.Profile != "" {
		if err := ValidateName(f.Profile, r.Profile); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
