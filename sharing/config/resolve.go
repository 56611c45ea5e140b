// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// PoolFor returns the pool of a node with these labels: of those whose selector it has, the one with the most labels.
// The error wraps ErrNotFound when there is none. It wraps ErrConflict, with the names, when two are equally specific,
// because then the choice is ambiguous.
func (c Config) PoolFor(labels map[string]string) (Pool, error) {
	var best []Pool
	for _, p := range c.doc.Pools {
		if !selects(p.NodeSelector, labels) {
			continue
		}
		if len(best) > 0 && len(p.NodeSelector) != len(best[0].NodeSelector) {
			if len(p.NodeSelector) < len(best[0].NodeSelector) {
				continue
			}
			best = nil
		}
		best = append(best, p)
	}
	switch len(best) {
	case 0:
		return Pool{}, fmt.Errorf("no pool of the sharing config selects this node: %w", sharing.ErrNotFound)
	case 1:
		p := best[0]
		p.NodeSelector, p.Profiles, p.Backends = maps.Clone(p.NodeSelector), slices.Clone(p.Profiles),
			slices.Clone(p.Backends)
		p.MIGLayouts, p.GPURules = cloneLayouts(p.MIGLayouts), cloneRules(p.GPURules)
		return p, nil
	}
	names := make([]string, 0, len(best))
	for _, p := range best {
		names = append(names, strconv.Quote(p.Name))
	}
	return Pool{},
		fmt.Errorf("pools %s of the sharing config select this node by %d labels each; give one of them a label "+
			"more: %w", strings.Join(names, " and "), len(best[0].NodeSelector), sharing.ErrConflict)
}

// Of is what holds for a GPU of the pool: what the first rule says that fits, and the pool's own for the rest.
func (p Pool) Of(g sharing.GPU) GPUSettings {
	s := GPUSettings{
		MaxSharesPerGPU: p.MaxSharesPerGPU, MemoryReserve: p.MemoryReserve, PowerLimitWatts: p.PowerLimitWatts,
		TimeSlice: p.TimeSlice, ComputeMode: p.ComputeMode, Overcommit: p.Overcommit, FrontEnd: p.FrontEnd,
	}
	for _, r := range p.GPURules {
		if r.fits(g) {
			own := r.Settings
			s.Excluded, s.Mode = own.Excluded, own.Mode
			s.MaxSharesPerGPU = cmp.Or(own.MaxSharesPerGPU, s.MaxSharesPerGPU)
			s.MemoryReserve = cmp.Or(own.MemoryReserve, s.MemoryReserve)
			s.PowerLimitWatts, s.TimeSlice = cmp.Or(own.PowerLimitWatts, s.PowerLimitWatts),
				cmp.Or(own.TimeSlice, s.TimeSlice)
			s.Overcommit = own.Overcommit.Or(s.Overcommit)
			s.Backends, s.MinLevel = own.Backends, own.MinLevel
			break
		}
	}
	s.Overcommit = s.Overcommit.Plain()
	return s
}

func (r GPURule) fits(g sharing.GPU) bool {
	switch {
	case len(r.Models) > 0 && !sharing.MatchModels(r.Models, g.Model),
		len(r.Indexes) > 0 && !slices.Contains(r.Indexes, g.Index),
		len(r.UUIDs) > 0 && !slices.Contains(r.UUIDs, g.UUID),
		r.MIG == MIGCapable && !g.MIGCapable, r.MIG == MIGIncapable && g.MIGCapable:
		return false
	}
	return true
}

func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// Resolve makes a request complete by the rules of the pool and of the profile that it names. The
// profile gives the amounts; what the request says of them narrows, and none of memory, percent and GPUs may
// exceed the profile's. Model globs bind from both. The least level is the highest that request, profile or
// pool demands: a request raises it and never lowers it. LevelNone in the request demands nothing, because only the
// config allows a share that no backend enforces. The place is the request's, else the profile's, else the pool's, else
// pack.
//
// The error has every problem, each a *sharing.FieldError, joined.
func (c Config) Resolve(pool Pool, asked sharing.Request) (sharing.Request, error) {
	if err := asked.Validate(); err != nil {
		return sharing.Request{}, err
	}
	r := asked.Clone()
	if r.MinLevel == sharing.LevelNone {
		r.MinLevel = sharing.LevelUnknown
	}
	if r.Profile == "" && pool.Profiles != nil {
		return sharing.Request{}, sharing.Invalid("profile", "", c.choices(pool),
			"is missing, and pool %q takes no request without one", pool.Name)
	}
	if r.Profile != "" {
		p, ok := c.Profile(r.Profile)
		if !ok || pool.Profiles != nil && !slices.Contains(pool.Profiles, r.Profile) {
			return sharing.Request{}, sharing.Invalid("profile", r.Profile, c.choices(pool),
				"is not a profile of pool %q", pool.Name)
		}
		var err error
		if r, err = overlay(p, r); err != nil {
			return sharing.Request{}, err
		}
	}
	r.MinLevel = max(r.MinLevel, pool.MinLevel)
	for _, place := range []sharing.Spread{pool.Place, sharing.PlacePack} {
		if r.Place == sharing.PlaceDefault {
			r.Place = place
		}
	}
	if err := r.Validate(); err != nil {
		return sharing.Request{}, err
	}
	return r, nil
}

func (c Config) choices(pool Pool) string {
	names := c.ProfileNames(pool)
	if len(names) == 0 {
		return "request amounts instead; the sharing config has no profiles here"
	}
	return "name one of " + strings.Join(names, ", ")
}

// Requests are the amounts that a container requests with the profile. They are written into a pod that names it and
// requests nothing. If the memory is no whole number of GiB, which no pod can request, there are none.
func (p Profile) Requests() []sharing.ResourceRequest {
	count := func(resource string, n int) sharing.ResourceRequest {
		return sharing.ResourceRequest{Resource: strings.TrimPrefix(resource, sharing.Domain+"/"), Count: n}
	}
	r := p.request()
	if r.Kind == sharing.KindWhole {
		return []sharing.ResourceRequest{count(sharing.ResourceGPU, r.GPUs)}
	}
	if r.Memory%sharing.GiB != 0 {
		return nil
	}
	var asks []sharing.ResourceRequest
	if r.Memory != 0 {
		asks = append(asks, count(sharing.ResourceMemory, int(r.Memory/sharing.GiB))) //nolint:gosec // a valid size is far below
	}
	if r.Percent != 0 {
		asks = append(asks, count(sharing.ResourcePercent, int(r.Percent)))
	}
	return asks
}

// Permit reports whether a pod of the namespace, or without one a process of no pod, may begin to use the profile at
// that moment. The error joins every rule that forbids it, each a *sharing.FieldError that names the rule. Running
// processes stay. No profile, and one that the config does not have, has no rules.
func (c Config) Permit(profile, namespace string, at time.Time) error {
	p, ok := c.Profile(profile)
	if !ok {
		return nil
	}
	var errs []error
	bad := func(rule, remedy, problem string, args ...any) {
		errs = append(errs, sharing.Invalid("profile", profile, remedy, problem+" (spec.profiles, "+profile+"."+rule+
			")", args...))
	}
	switch {
	case p.Namespaces == nil:
	case namespace == "":
		bad("namespaces", "name another profile",
			"is for pods of the namespaces %s, and a process outside pods has none", strings.Join(p.Namespaces, ", "))
	case !sharing.MatchModels(p.Namespaces, namespace):
		bad("namespaces", "name another profile, or ask an administrator", "is for the namespaces %s, not for %q",
			strings.Join(p.Namespaces, ", "), namespace)
	}
	if p.Hours != nil && !slices.ContainsFunc(p.Hours, func(h Hours) bool { return h.Has(at) }) {
		bad("startWindows", "wait, or name another profile",
			"is for the hours %s (in UTC where no zone is named), and it is %s UTC",
			strings.Join(texted(p.Hours), " and "), at.UTC().Format("Mon 15:04"))
	}
	return errors.Join(errs...)
}

// PermitMemory reports whether one pod, or one process of no pod, may have so much memory in all by the profile. The
// error is a *sharing.FieldError that names the rule.
func (c Config) PermitMemory(profile string, total sharing.Bytes) error {
	p, ok := c.Profile(profile)
	if !ok || p.MaxPerPod == 0 || total <= p.MaxPerPod {
		return nil
	}
	return sharing.Invalid("profile", profile, "request less",
		"gives one pod at most %s, and its containers have %s together (spec.profiles, %s.maxMemoryPerPod)",
		p.MaxPerPod, total, profile)
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
			c.bad(at(path+".startWindows", i), "", hoursRemedy, "are not hours of the week")
		}
	}
	if p.Hours != nil && len(p.Hours) == 0 {
		c.bad(path+".startWindows", "", "write at least one entry, or leave the field out", "is an empty list")
	}
	if p.AllowPrivileged && len(p.Namespaces) == 0 {
		c.bad(path+".allowPrivileged", "true", "add namespaces",
			"lets everybody have privileged containers, which no cap holds")
	}
	if p.MaxPerPod != 0 && p.MaxPerPod < p.Memory {
		c.bad(path+".maxMemoryPerPod", p.MaxPerPod.String(), "write at least memory, or leave it out",
			"is less than the %s of one container", p.Memory)
	}
}
