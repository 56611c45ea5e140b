// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Backend is one way of holding a share of a GPU to its size.
type Backend uint8

// The backends, strongest first. MPS and libkerf are equally strong; where a list has both, the first counts.
const (
	// BackendNone: nothing holds the share. It stands in no list.
	BackendNone Backend = iota
	// BackendDriver: the driver's own memory limits. It is part of every list: where the driver has limits they
	// are used.
	BackendDriver
	// BackendMPS: the limits of an MPS server's clients.
	BackendMPS
	// BackendLibkerf: a preloaded library that refuses what would exceed the share.
	BackendLibkerf
	// BackendReactive: watched, and acted on by OverCap.
	BackendReactive
)

// Backends are all that a list can have, strongest first.
func Backends() []Backend {
	return []Backend{BackendDriver, BackendMPS, BackendLibkerf, BackendReactive}
}

// DefaultBackends are those of a pool that lists none, strongest first: the driver's limits, on older drivers libkerf, and the
// reactive backend behind both. MPS is only for pools that list it, because it changes how programs share a GPU.
func DefaultBackends() []Backend {
	return []Backend{BackendDriver, BackendLibkerf, BackendReactive}
}

// MPSBackends are those of a pool whose shares MPS enforces where the driver has no limits.
func MPSBackends() []Backend { return []Backend{BackendDriver, BackendMPS, BackendReactive} }

// LimitsTime reports whether the backend limits the compute of a grant to its percent.
func (b Backend) LimitsTime() bool { return b == BackendLibkerf || b == BackendMPS }

// String returns "driver", "mps", "libkerf", "reactive" or "none".
func (b Backend) String() string {
	switch b {
	case BackendDriver:
		return "driver"
	case BackendMPS:
		return "mps"
	case BackendLibkerf:
		return "libkerf"
	case BackendReactive:
		return "reactive"
	case BackendNone:
	}
	return "none"
}

// Level is what a share is worth that the backend holds.
func (b Backend) Level() sharing.Level {
	switch b {
	case BackendDriver:
		return sharing.LevelDriver
	case BackendMPS, BackendLibkerf:
		return sharing.LevelClient
	case BackendReactive:
		return sharing.LevelReactive
	case BackendNone:
	}
	return sharing.LevelNone
}

// ParseBackend reads the name of one of Backends; field names the input for the error, a *sharing.FieldError.
func ParseBackend(field, s string) (Backend, error) {
	var names []string
	for _, b := range Backends() {
		if b.String() == s {
			return b, nil
		}
		names = append(names, b.String())
	}
	return BackendNone, sharing.Invalid(field, s, "write one of "+strings.Join(names, ", "), "is not a backend of this version")
}

// BackendsOf are the ways of holding a grant of the profile of that name, or of none, in the pool, strongest
// first: the profile's list, else the pool's, else DefaultBackends. A profile that the document no longer has
// leaves it to the pool.
func (c Config) BackendsOf(pool Pool, profile string) []Backend {
	if p, ok := c.Profile(profile); ok && p.Backends != nil {
		return p.Backends
	}
	if pool.Backends != nil {
		return slices.Clone(pool.Backends)
	}
	return DefaultBackends()
}

// backends checks a list: the strongest first, each once.
func (c *checker) backends(path string, list []Backend) {
	if list == nil {
		return
	}
	if len(list) == 0 || list[0] != BackendDriver {
		first := ""
		if len(list) > 0 {
			first = list[0].String()
		}
		c.bad(path, first, "begin with driver, or leave the field out", "does not begin with driver, whose limits are used wherever it has them")
	}
	before := BackendDriver
	for i, b := range list {
		where := at(path, i)
		switch {
		case !slices.Contains(Backends(), b):
			c.bad(where, "", "use a Backend of this package", "is not a backend")
		case slices.Index(list, b) < i:
			c.bad(where, b.String(), "name it once", "is named twice")
		case i > 1 && before.Level() < b.Level():
			c.bad(where, b.String(), "write the stronger one first", "is stronger than %s before it", before)
		}
		before = b
	}
}
