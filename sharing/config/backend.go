// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Backend is one way of holding a share of a GPU to its size.
type Backend uint8

// The backends, strongest first.
const (
	// BackendDriver: the driver's own memory limits (level driver). It is part of every list: where the driver
	// has limits they are used.
	BackendDriver Backend = iota
	// BackendReactive: watched, and acted on by OverCap (level reactive).
	BackendReactive
)

// String returns "driver" or "reactive".
func (b Backend) String() string {
	switch b {
	case BackendReactive:
		return "reactive"
	case BackendDriver:
	}
	return "driver"
}

// ParseBackend reads "driver" or "reactive"; field names the input for the error, a *sharing.FieldError.
func ParseBackend(field, s string) (Backend, error) {
	for _, b := range []Backend{BackendDriver, BackendReactive} {
		if b.String() == s {
			return b, nil
		}
	}
	return BackendDriver, sharing.Invalid(field, s, "write driver or reactive", "is not a backend of this version")
}

// Reactive reports whether shares may be watched where nothing stronger holds them.
func (p Pool) Reactive() bool { return slices.Contains(p.Backends, BackendReactive) }

// backends checks the list of a pool: the strongest first, each once.
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
	for i, b := range list {
		where := at(path, i)
		switch {
		case b > BackendReactive:
			c.bad(where, "", "use a Backend of this package", "is not a backend")
		case slices.Index(list, b) < i:
			c.bad(where, b.String(), "name it once", "is named twice")
		}
	}
}
