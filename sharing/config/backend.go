// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

// DefaultBackends are those of a pool that lists none, strongest first: the driver's limits, on older drivers libkerf,
// and the reactive backend behind both. MPS is only for pools that list it, because it changes how programs share a
// GPU.
func DefaultBackends() []sharing.Backend {
	return []sharing.Backend{sharing.BackendDriver, sharing.BackendLibkerf, sharing.BackendReactive}
}

// MPSBackends are those of a pool whose shares MPS enforces where the driver has no limits.
func MPSBackends() []sharing.Backend {
	return []sharing.Backend{sharing.BackendDriver, sharing.BackendMPS, sharing.BackendReactive}
}

// BackendsOf are the backends for a grant of the profile of that name, or of none, in the pool, strongest first. They
// are the profile's list, else the pool's, else DefaultBackends. A profile that the config no longer has leaves it to
// the pool.
func (c Config) BackendsOf(pool Pool, profile string) []sharing.Backend {
	if p, ok := c.Profile(profile); ok && p.Backends != nil {
		return p.Backends
	}
	if pool.Backends != nil {
		return slices.Clone(pool.Backends)
	}
	return DefaultBackends()
}

// backends checks a list: the strongest first, each once.
func (c *checker) backends(path string, list []sharing.Backend) {
	if list == nil {
		return
	}
	if len(list) == 0 || list[0] != sharing.BackendDriver {
		first := ""
		if len(list) > 0 {
			first = list[0].String()
		}
		c.bad(path, first, "begin with driver, or leave the field out",
			"does not begin with driver, whose limits are used wherever it has them")
	}
	before := sharing.BackendDriver
	for i, b := range list {
		where := at(path, i)
		switch {
		case !slices.Contains(sharing.Backends(), b):
			c.bad(where, "", "use a Backend of this package", "is not a backend")
		case slices.Index(list, b) < i:
			c.bad(where, b.String(), "name it once", "is named twice")
		case i > 1 && before.Level() < b.Level():
			c.bad(where, b.String(), "write the stronger one first", "is stronger than %s before it", before)
		}
		before = b
	}
}

// BackendList is a list of backends as one text, their names with commas, so that the settings that have it can be
// compared and kept. Empty is no list.
type BackendList string

// BackendListOf is the list of these.
func BackendListOf(list ...sharing.Backend) BackendList {
	return BackendList(strings.Join(names(list), ","))
}

// List are the backends, nil for no list. A name that is none of Backends is BackendNone.
func (l BackendList) List() []sharing.Backend {
	if l == "" {
		return nil
	}
	var out []sharing.Backend
	for name := range strings.SplitSeq(string(l), ",") {
		b, _ := sharing.ParseBackend("", name)
		out = append(out, b)
	}
	return out
}

// BackendsOn are the backends for a grant on a GPU of the pool with the settings s. The grant has the profile of that
// name, or none. They are the GPU's own list, else those of BackendsOf. The GPU's users decide how it is shared: MPS
// and other backends are never on one together. A profile with its own list could else bypass the purpose of the GPU's
// rule.
func (c Config) BackendsOn(s GPUSettings, pool Pool, profile string) []sharing.Backend {
	if own := s.Backends.List(); own != nil {
		return own
	}
	return c.BackendsOf(pool, profile)
}

// Lists reports whether the pool lists a backend for any of its GPUs.
func (c Config) Lists(pool Pool, b sharing.Backend) bool {
	return slices.Contains(c.BackendsOf(pool, ""), b) ||
		slices.ContainsFunc(pool.GPURules, func(r GPURule) bool {
			return slices.Contains(r.Settings.Backends.List(),
				b)
		})
}

// ListsMPS reports whether the pool lists MPS for any of its GPUs.
func (c Config) ListsMPS(pool Pool) bool { return c.Lists(pool, sharing.BackendMPS) }

// ruleLevels are the levels that a rule may demand: those of fractions. Whole GPUs and MIG instances always have more.
func ruleLevels() []sharing.Level {
	return []sharing.Level{sharing.LevelNone, sharing.LevelReactive, sharing.LevelUserspace, sharing.LevelDriver}
}

func parseRuleLevel(field, s string) (sharing.Level, error) {
	l, err := sharing.ParseLevel(field, s)
	if err != nil || !slices.Contains(ruleLevels(), l) {
		return sharing.LevelUnknown, sharing.Invalid(field, s,
			"write none, reactive, userspace or driver, or mode: whole or mig", "is not a level of a fraction")
	}
	return l, nil
}

func ruleBackendsField(to *BackendList) field {
	var list []sharing.Backend
	f := backendsField(&list, "The backends for shares of these GPUs, in place of those of profile and pool. The "+
		"strongest is first, starting with `driver`.")
	read := f.read
	f.read = func(r *reader, path string, n *yaml.Node) {
		before := len(r.mistakes)
		if read(r, path, n); len(list) == 0 && len(r.mistakes) == before {
			r.bad(path, n, "", "begin with driver, or leave the field out", "is an empty list")
		}
		*to = BackendListOf(list...)
	}
	f.to, f.write = to, func() any { return names(to.List()) }
	return f.def("the profile's, else the pool's")
}

// ruleBackends checks what a rule says of how fractions are held.
func (c *checker) ruleBackends(path string, s GPUSettings, p Pool) {
	c.backends(path+".backends", s.Backends.List())
	where := path + ".minEnforcement"
	switch {
	case s.MinLevel == sharing.LevelUnknown:
	case !slices.Contains(ruleLevels(), s.MinLevel):
		c.bad(where, s.MinLevel.String(), "write none, reactive, userspace or driver, or mode: whole or mig",
			"is not a level of a fraction")
	case !s.MinLevel.AtLeast(p.MinLevel):
		c.bad(where, s.MinLevel.String(), "write "+p.MinLevel.String()+
			" or more, or lower the pool's and raise it by rules",
			"is less than the %s that the pool demands of every grant", p.MinLevel)
	case s.MinLevel >= sharing.LevelDriver && s.Overcommit.Or(p.Overcommit).Memory.More() &&
		p.MinLevel < sharing.LevelDriver:
		c.bad(where, s.MinLevel.String(), "write overcommit: {memory: 1} here, or demand userspace or less",
			"cannot be had where memory is overcommitted, since neighbours can then take what a grant has not used yet")
	}
	mode := s.Mode
	if mode == ModeAuto {
		mode = p.Mode
	}
	if mode != ModeWhole || s.Excluded {
		return
	}
	if s.Backends != "" {
		c.bad(path+".backends", "", "leave it out", "is for fractions, and mode whole gives none")
	}
	if s.MinLevel != sharing.LevelUnknown {
		c.bad(where, "", "leave it out", "is for fractions, and mode whole gives none")
	}
}
