// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// checker collects what is wrong with a config's meaning.
type checker struct{ mistakes Errors }

func (c *checker) bad(path, value, remedy, problem string, args ...any) {
	c.all(sharing.Invalid(path, value, remedy, problem, args...))
}

// known notes a value that is none of its type; want names the type.
func (c *checker) known(ok bool, path, want, problem string) {
	if !ok {
		c.bad(path, "", "use "+want, "%s", problem)
	}
}

// all takes in a joined error of FieldErrors.
func (c *checker) all(err error) {
	var many interface{ Unwrap() []error }
	if errors.As(err, &many) {
		for _, one := range many.Unwrap() {
			c.all(one)
		}
		return
	}
	if what, ok := errors.AsType[*sharing.FieldError](err); ok && !c.mistakes.full() {
		c.mistakes = append(c.mistakes, Error{What: what})
	}
}

// paths are where a config's parts stand.
type paths struct {
	// none is where pools would stand if there were any.
	none            string
	pools, profiles []string
	prices          string
}

// paths are those of a config in one text.
func (d Spec) paths() paths {
	p := paths{none: "spec.pools", prices: "spec.prices"}
	for i := range d.Pools {
		p.pools = append(p.pools, at("spec.pools", i))
	}
	for i := range d.Profiles {
		p.profiles = append(p.profiles, at("spec.profiles", i))
	}
	return p
}

// check returns every error in the config's meaning, with field paths.
func check(doc Spec, where paths) Errors {
	var c checker
	if len(doc.Pools) == 0 {
		c.bad(where.none, "", "write a pool; one without nodeSelector is for every node", "names no pool")
	}
	profiles := map[string]string{}
	for i, p := range doc.Profiles {
		if c.mistakes.full() {
			break
		}
		c.profile(where.profiles[i], p, profiles)
	}
	c.prices(where.prices, doc.Prices)
	pools, selectors := map[string]string{}, map[string]string{}
	for i, p := range doc.Pools {
		if c.mistakes.full() {
			break
		}
		c.pool(where.pools[i], p, pools, selectors, profiles)
		if p.PerGPUHour != 0 && doc.Prices.Currency == "" {
			c.bad(where.pools[i]+".perGPUHour", "", "write spec.prices with a currency too",
				"is a price without a currency")
		}
	}
	return c.mistakes
}

// name checks a name, and that seen, which has the path of each name, does not have it.
func (c *checker) name(path, name string, seen map[string]string) {
	if err := sharing.ValidateName(path+".name", name); err != nil {
		c.all(err)
		return
	}
	if first, taken := seen[name]; taken {
		c.bad(path+".name", name, "give each its own name", "is the name of %s, too", first)
		return
	}
	seen[name] = path
}

func (c *checker) profile(path string, p Profile, seen map[string]string) {
	c.name(path, p.Name, seen)
	if p.Memory == 0 && p.Percent == 0 && p.GPUs == 0 {
		c.bad(path, "", "write memory, percent or gpuCount", "requests nothing")
	}
	c.backends(path+".backends", p.Backends)
	c.known(p.OverCap <= OverCapEvict, path+".onOverCap", "an OverCap of this package", "is not an over-cap policy")
	c.burst(path+".maxBurstMemory", p)
	c.priority(path+".priority", p.Priority)
	c.rules(path, p)
	r := p.request()
	r.Profile = "" // Check would take it for one that is still to be filled; the name is checked above
	if r.Memory == 0 && r.Percent == 0 && r.Kind == sharing.KindShared {
		r.Percent = 1 // said just above
	}
	c.all(r.Check(sharing.Fields{
		Memory: path + ".memory", Percent: path + ".percent", GPUs: path + ".gpuCount", Whole: path + ".gpuCount",
		Models: path + ".gpuModel", MinLevel: path + ".minEnforcement", Place: path + ".placementPolicy",
	}))
}

// burst checks that a burst is more than what is guaranteed.
func (c *checker) burst(path string, p Profile) {
	b, r := p.Burst, p.request()
	switch {
	case b == sharing.Burst{}:
	case b.Memory != 0 && b.Percent != 0:
		c.bad(path, b.String(), "set one of both", "is a size and a percentage")
	case r.Kind == sharing.KindWhole:
		c.bad(path, b.String(), "leave it out", "is for a share of a GPU: whole GPUs have all their memory")
	case b.Percent != 0 && b.Percent <= 100 || b.Memory != 0 && b.Memory <= p.Memory:
		c.bad(path, b.String(), "write more than memory, or leave it out", "is not more than what is guaranteed")
	case b.Memory%sharing.Bytes(r.GPUs) != 0: //nolint:gosec // 1 to MaxGPUs, or refused as gpuCount
		c.bad(path, b.String(), "write a multiple of the number of GPUs", "does not divide evenly by %d GPUs", r.GPUs)
	}
}

func (c *checker) pool(path string, p Pool, pools, selectors, profiles map[string]string) {
	c.name(path, p.Name, pools)
	for _, key := range slices.Sorted(maps.Keys(p.NodeSelector)) {
		if !labelKey(key) {
			c.bad(path+".nodeSelector", key, "write a label's key, such as kerf.dev/pool",
				"has a key that no label has")
		}
		if value := p.NodeSelector[key]; !labelValue(value) {
			c.bad(path+".nodeSelector."+key, value, "write at most 63 of letters, digits, - _ .",
				"is not a label's value")
		}
	}
	selector := canonical(p.NodeSelector)
	if first, taken := selectors[selector]; taken {
		c.bad(path+".nodeSelector", selector, "let the selectors differ", "is also that of %s", first)
	} else {
		selectors[selector] = path
	}
	c.known(p.Mode <= ModeMIG, path+".mode", "a Mode of this package", "is not a mode")
	c.known(p.Place <= sharing.PlaceSpread, path+".placementPolicy", "a Spread of package sharing",
		"is not a placement policy")
	c.known(p.MinLevel <= sharing.LevelExclusive, path+".minEnforcement", "a Level of package sharing",
		"is not an enforcement level")
	c.backends(path+".backends", p.Backends)
	c.known(p.OverCap <= OverCapEvict, path+".onOverCap", "an OverCap of this package", "is not an over-cap policy")
	c.known(p.MPSDaemonScope <= MPSScopePool, path+".mpsDaemonScope", "an MPSDaemonScope of this package",
		"is not the scope of an MPS daemon")
	c.known(p.OnUnmanagedProcess <= UnmanagedKill, path+".onUnmanagedProcess", "an OnUnmanagedProcess of this package",
		"is not a policy for unmanaged processes")
	c.known(p.ManagedMemory <= ManagedReject, path+".managedMemory", "a ManagedMemory of this package",
		"is not a rule for managed memory")
	c.quota(path+".userQuota", p.UserQuota)
	c.health(path+".health", p.Health)
	c.idle(path+".idle", p.Idle)
	c.compute(path, p)
	c.gpuRules(path, p)
	if !(p.PerGPUHour >= 0 && p.PerGPUHour <= MaxPrice) {
		c.bad(path+".perGPUHour", "", "write a number such as 2.50", "is not a price")
	}
	c.frontEnd(path, p)
	c.mig(path+".migLayouts", p.MIGLayouts)
	c.migWarm(path+".migIdleTTL", p.MIGIdleTTL)
	c.onDemand(path+".autoMIGMode", p)
	if p.Profiles != nil && len(p.Profiles) == 0 {
		c.bad(path+".allowedProfiles", "", "name at least one, or leave the field out", "is an empty list")
	}
	for i, name := range p.Profiles {
		where := at(path+".allowedProfiles", i)
		if _, ok := profiles[name]; !ok {
			c.bad(where, name, meant(name, slices.Sorted(maps.Keys(profiles)))+"name one of spec.profiles",
				"is not a profile of this config")
		}
		if slices.Index(p.Profiles, name) < i {
			c.bad(where, name, "name it once", "is named twice")
		}
	}
}

// canonical is a text that two selectors share exactly when they are identical.
func canonical(selector map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		parts = append(parts, key+"="+selector[key])
	}
	return strings.Join(parts, ",")
}

// labelKey reports whether s is a label's key in Kubernetes: a name, with or without a DNS domain before it.
func labelKey(s string) bool {
	domain, name, prefixed := strings.Cut(s, "/")
	if !prefixed {
		name = domain
	} else if len(domain) > 253 || !dns(domain) {
		return false
	}
	return name != "" && labelValue(name)
}

// labelValue reports whether s is a label's value in Kubernetes.
func labelValue(s string) bool {
	alnum := func(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' }
	if s == "" {
		return true
	}
	if len(s) > 63 || !alnum(s[0]) || !alnum(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alnum(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// dns reports whether s is a DNS domain in lower case.
func dns(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if len(label) > 63 || sharing.ValidateName("", label) != nil {
			return false
		}
	}
	return true
}
