// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Wish is a profile as people and configurations name it, not yet bound to a GPU. It is made by ParseWish.
type Wish struct {
	// Compute is the number of compute slices; 0 means any.
	Compute int
	// GB is the size in the profile's name, in the gigabytes that such names have; 0 means the smallest.
	GB int
	// AtLeast is the memory that programs must be able to use; 0 means any.
	AtLeast sharing.Bytes
	// Attribute is what follows the size: "" (none), "+me", "+gfx", "+me.all", "-me", ...
	Attribute string
}

const wishRemedy = `write a profile such as 1g.10gb, 1g.10gb+me or 1g, or a size such as ">= 16GiB"`

// The names that drivers give, with the leniency that ParseWish promises. The words "mig" and the separators of
// resource names are taken off before.
var (
	named     = regexp.MustCompile(`^([1-9][0-9]?)g(?:\.([1-9][0-9]{0,3})gb)?$`)
	attribute = regexp.MustCompile(`[+-][a-z][a-z0-9.]*$`)
	dotted    = regexp.MustCompile(`^([1-9][0-9]?g(?:\.[1-9][0-9]{0,3}gb)?)\.([a-z][a-z0-9.]*)$`)
	sliced    = regexp.MustCompile(`^[1-9][0-9]?c\.`)
)

// ParseWish reads the name of a profile. It takes upper and lower case, and "MIG " or "mig-" in front. It takes "." for
// the "+" of an attribute (as resource names must), and a name without its size ("1g", "1g+me"). The form ">= 16GiB" is
// the smallest profile with so much usable memory, with an attribute if need be (">=16GiB+gfx"). The error is a
// *sharing.FieldError for field.
func ParseWish(field, s string) (Wish, error) {
	text := strings.TrimSpace(s)
	if rest, ok := strings.CutPrefix(text, ">="); ok {
		return parseAtLeast(field, s, strings.TrimSpace(rest))
	}
	text = strings.ToLower(text)
	for _, prefix := range []string{"mig-", "mig "} {
		text = strings.TrimSpace(strings.TrimPrefix(text, prefix))
	}
	if sliced.MatchString(text) {
		return Wish{}, sharing.Invalid(field, s,
			"write the instance's own profile, such as 3g.20gb; shares inside it come from memory and percent",
			"names a compute instance inside a MIG instance, which Kerf does not make")
	}
	if m := dotted.FindStringSubmatch(text); m != nil {
		text = m[1] + "+" + m[2]
	}
	w := Wish{Attribute: attribute.FindString(text)}
	m := named.FindStringSubmatch(strings.TrimSuffix(text, w.Attribute))
	if m == nil {
		return Wish{}, sharing.Invalid(field, s, wishRemedy, "is not the name of a MIG profile")
	}
	w.Compute, _ = strconv.Atoi(m[1]) // at most four digits each
	w.GB, _ = strconv.Atoi(m[2])      // none: 0
	return w, nil
}

func parseAtLeast(field, s, size string) (Wish, error) {
	w := Wish{Attribute: attribute.FindString(strings.ToLower(size))}
	var err error
	w.AtLeast, err = sharing.ParseSize(field, strings.TrimSpace(size[:len(size)-len(w.Attribute)]))
	if err != nil {
		return Wish{}, sharing.Invalid(field, s, wishRemedy, "is not a size after >=")
	}
	return w, nil
}

// String writes the wish as ParseWish reads it.
func (w Wish) String() string {
	switch {
	case w.AtLeast > 0:
		// In bytes if the short form is truncated.
		size := w.AtLeast.String()
		if back, err := sharing.ParseBytes("", size); err != nil || back != w.AtLeast {
			size = strconv.FormatUint(uint64(w.AtLeast), 10)
		}
		return ">= " + size + w.Attribute
	case w.GB > 0:
		return fmt.Sprintf("%dg.%dgb%s", w.Compute, w.GB, w.Attribute)
	}
	return fmt.Sprintf("%dg%s", w.Compute, w.Attribute)
}

// drift is the largest difference, in percent, between two drivers' names for the same profile: 1g.23gb is 1g.24gb
// elsewhere.
const drift = 5

// Find returns the profile of this GPU with the requested name. A name with a size also matches a profile with the same
// slices and attribute, the one of the nearest size that differs by at most 5%. So a config outlives a driver that
// renames profiles. Else it is the smallest one that fits the request. An error is a *sharing.FieldError that lists the
// GPU's profiles and the nearest name.
func (t *Table) Find(field string, w Wish) (Profile, error) {
	type match struct {
		p   Profile
		off int
	}
	var found []match
	for _, p := range t.profiles {
		name, err := ParseWish("", p.Name)
		if err != nil || name.Attribute != w.Attribute || w.Compute > 0 && name.Compute != w.Compute ||
			p.Memory < w.AtLeast {
			continue
		}
		off := max(name.GB-w.GB, w.GB-name.GB)
		if w.GB > 0 && off*100 > drift*max(w.GB, name.GB) {
			continue
		}
		if w.GB == 0 {
			off = 0
		}
		found = append(found, match{p, off})
	}
	if len(found) == 0 {
		return Profile{}, noSuch(t, field, w)
	}
	// The table is in order of size, so the first of equals is the smallest.
	return slices.MinFunc(found, func(a, b match) int { return cmp.Compare(a.off, b.off) }).p, nil
}

// Lookup is ParseWish and Find together.
func (t *Table) Lookup(field, s string) (Profile, error) {
	w, err := ParseWish(field, s)
	if err != nil {
		return Profile{}, err
	}
	return t.Find(field, w)
}

func noSuch(t *Table, field string, w Wish) error {
	all := t.Names()
	if w.AtLeast > 0 {
		return sharing.Invalid(field, w.String(), "write at most "+largest(t, w.Attribute),
			"is more than any such profile of this GPU has (%s)", all)
	}
	near := slices.MinFunc(t.profiles, func(a, b Profile) int { return cmp.Compare(distance(w, a), distance(w, b)) })
	return sharing.Invalid(field, w.String(), fmt.Sprintf("did you mean %s? Write one of %s", near.Name, all),
		"is no profile of this GPU")
}

// largest is the size of the largest profile with the attribute, or of the largest at all.
func largest(t *Table, attribute string) string {
	var size, whole sharing.Bytes
	for _, p := range t.profiles {
		whole = max(whole, p.Memory)
		if strings.HasSuffix(p.Name, attribute) {
			size = max(size, p.Memory)
		}
	}
	if size == 0 {
		return whole.String() + ", without " + attribute
	}
	return size.String()
}

// distance says how unlike the wish a profile is: first its slices, then its attribute, then its size.
func distance(w Wish, p Profile) int {
	name, err := ParseWish("", p.Name)
	if err != nil {
		return 1 << 30
	}
	d := 1 << 20 * max(name.Compute-w.Compute, w.Compute-name.Compute)
	if name.Attribute != w.Attribute {
		d += 1 << 16
	}
	return d + max(name.GB-w.GB, w.GB-name.GB)
}
