// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Permit reports whether a pod of the namespace, or with an empty one a process of no pod, may begin to use the profile at
// that moment. The error has every rule that it may not by, each a *sharing.FieldError that names the rule, joined. What
// runs already stays. No profile, and one that the document does not have, has no rules.
func (c Config) Permit(profile, namespace string, at time.Time) error {
	p, ok := c.Profile(profile)
	if !ok {
		return nil
	}
	var errs []error
	bad := func(rule, remedy, problem string, args ...any) {
		errs = append(errs, sharing.Invalid("profile", profile, remedy, problem+" (spec.profiles, "+profile+"."+rule+")", args...))
	}
	switch {
	case p.Namespaces == nil:
	case namespace == "":
		bad("namespaces", "name another profile", "is for pods of the namespaces %s, and a process of its own is of none", strings.Join(p.Namespaces, ", "))
	case !sharing.MatchModels(p.Namespaces, namespace):
		bad("namespaces", "name another profile, or ask who sets the rules", "is for the namespaces %s, not for %q", strings.Join(p.Namespaces, ", "), namespace)
	}
	if p.Hours != nil && !slices.ContainsFunc(p.Hours, func(h Hours) bool { return h.Has(at) }) {
		bad("hours", "wait, or name another profile", "is for the hours %s (in UTC where no zone is named), and it is %s UTC", strings.Join(texted(p.Hours), " and "), at.UTC().Format("Mon 15:04"))
	}
	return errors.Join(errs...)
}

// PermitMemory reports whether one pod, or one process of no pod, may have so much memory in all by the profile. The error
// is a *sharing.FieldError that names the rule.
func (c Config) PermitMemory(profile string, total sharing.Bytes) error {
	p, ok := c.Profile(profile)
	if !ok || p.MaxPerPod == 0 || total <= p.MaxPerPod {
		return nil
	}
	return sharing.Invalid("profile", profile, "ask for less", "gives one pod at most %s, and its containers have %s together (spec.profiles, %s.maxMemoryPerPod)", p.MaxPerPod, total, profile)
}

// rules checks who may use a profile.
func (c *checker) rules(path string, p Profile) {
	for i, g := range p.Namespaces {
		where := at(path+".namespaces", i)
		if err := sharing.CheckGlob(where, g); err != nil {
			c.bad(where, g, "write a namespace, or a pattern such as ml-* or !test-*", "is not a pattern of namespaces")
		}
	}
	if p.Namespaces != nil && len(p.Namespaces) == 0 {
		c.bad(path+".namespaces", "", "name at least one, or leave the field out", "is an empty list")
	}
	for i, h := range p.Hours {
		if !h.valid() {
			c.bad(at(path+".hours", i), "", hoursRemedy, "are not hours of the week")
		}
	}
	if p.Hours != nil && len(p.Hours) == 0 {
		c.bad(path+".hours", "", "write at least one entry, or leave the field out", "is an empty list")
	}
	if p.Privileged && len(p.Namespaces) == 0 {
		c.bad(path+".privileged", "true", "add namespaces", "lets everybody have privileged containers, which no cap holds")
	}
	if p.MaxPerPod != 0 && p.MaxPerPod < p.Memory {
		c.bad(path+".maxMemoryPerPod", p.MaxPerPod.String(), "write at least memory, or leave it out", "is less than the %s of one container", p.Memory)
	}
}
