// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// DefaultBackends are those of a pool that lists none, strongest first: the driver's limits, on older drivers libkerf, and the
// reactive backend behind both. MPS is only for pools that list it, because it changes how programs share a GPU.
func DefaultBackends() []sharing.Backend {
	return []sharing.Backend{sharing.BackendDriver, sharing.BackendLibkerf, sharing.BackendReactive}
}

// MPSBackends are those of a pool whose shares MPS enforces where the driver has no limits.
func MPSBackends() []sharing.Backend {
	return []sharing.Backend{sharing.BackendDriver, sharing.BackendMPS, sharing.BackendReactive}
}

// BackendsOf are the ways of holding a grant of the profile of that name, or of none, in the pool, strongest
// first: the profile's list, else the pool's, else DefaultBackends. A profile that the document no longer has
// leaves it to the pool.
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
		c.bad(path, first, "begin with driver, or leave the field out", "does not begin with driver, whose limits are used wherever it has them")
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
