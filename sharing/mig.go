// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Instance is a MIG instance's place on its GPU, by which it is known: the driver's ids and UUIDs change whenever it is
// created again. The zero value is none.
type Instance struct {
	// Profile is the driver's name, such as "1g.10gb", and ID the driver's number for it.
	Profile string
	ID      int
	// Start and Size are in placement units of the GPU; Size is at least 1.
	Start, Size int
}

// migProfile is the form of drivers' names for profiles, and migResource that of their part in resource names.
var (
	migProfile  = regexp.MustCompile(`^[1-9][0-9]?g(\.[1-9][0-9]{0,3}gb)?([+-][a-z][a-z0-9.]{0,31})?$`)
	migResource = regexp.MustCompile(`^[1-9][0-9]?g(\.[1-9][0-9]{0,3}gb)?([.-][a-z][a-z0-9.]{0,31})?$`)
)

// MIGResource is the resource by which pods request a MIG profile of that name: "kerf.dev/mig-1g.10gb.me" for
// "1g.10gb+me", as NVIDIA's device plugin writes it. It is false for what is no profile's name.
func MIGResource(profile string) (string, bool) {
	if !migProfile.MatchString(profile) {
		return "", false
	}
	return resourceMIG + strings.ReplaceAll(profile, "+", "."), true
}

// IsMIGResource reports whether a resource, with its domain, is one for MIG instances.
func IsMIGResource(resource string) bool {
	profile, ok := strings.CutPrefix(resource, resourceMIG)
	return ok && migResource.MatchString(profile)
}

// maxProfileName is longer than any name of a profile.
const maxProfileName = 64

// checkMIG checks a request for a MIG instance. Whether a GPU has the profile, only the GPU tells.
func (r Request) checkMIG(f Fields) (errs []error) {
	bad := func(field, value, remedy, problem string, args ...any) {
		errs = append(errs, Invalid(field, value, remedy, problem, args...))
	}
	if r.MIG == "" || len(r.MIG) > maxProfileName {
		bad(f.MIG, r.MIG, "write a profile such as 1g.10gb", "is not the name of a MIG profile")
	}
	if r.Memory != 0 {
		bad(f.Memory, r.Memory.String(), "leave it out, or choose another profile",
			"cannot be given together with %s: the instance has its own memory, and takes no other limit", f.MIG)
	}
	if r.Percent != 0 {
		bad(f.Percent, r.Percent.String(), "leave it out, or choose another profile",
			"cannot be given together with %s: the instance has its own share of the compute", f.MIG)
	}
	if r.GPUs > 1 {
		bad(f.GPUs, strconv.Itoa(r.GPUs), "request one instance",
			"cannot be given together with %s: a program uses one MIG instance at a time", f.MIG)
	}
	if r.Profile != "" {
		bad(f.Profile, r.Profile, "leave out one of them",
			"cannot be given together with %s: a profile gives shares or whole GPUs", f.MIG)
	}
	if r.MinLevel > LevelHardware {
		bad(f.MinLevel, r.MinLevel.String(), "demand hardware at most, or a whole GPU",
			"is more than a MIG instance has")
	}
	return errs
}

// None reports whether i is no instance.
func (i Instance) None() bool { return i.Size == 0 }

// Overlaps reports whether both cannot be on one GPU.
func (i Instance) Overlaps(j Instance) bool {
	return !i.None() && !j.None() && i.Start < j.Start+j.Size && j.Start < i.Start+i.Size
}

// String returns "1g.10gb at 6".
func (i Instance) String() string {
	if i.None() {
		return "none"
	}
	return fmt.Sprintf("%s at %d", i.Profile, i.Start)
}

// MIGDevice is an instance as the driver has it now.
type MIGDevice struct {
	GPU GPUID
	// UUID begins with "MIG-"; programs name the device by it.
	UUID string
	// GI and CI are the driver's ids, which name its capability files.
	GI, CI int
}
