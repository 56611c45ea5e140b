// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"strconv"

	"github.com/kerf-gpu/kerf/sharing"
)

// MaxPriority is the most that a profile's priority may be, and with a minus the least: what a PriorityClass of
// Kubernetes may have.
const MaxPriority = 1_000_000_000

// ParsePriority reads a whole number; field names the input for the error, a *sharing.FieldError.
func ParsePriority(field, s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < -MaxPriority || n > MaxPriority {
		return 0, sharing.Invalid(field, s, "write a whole number from -1000000000 to 1000000000", "is not a priority")
	}
	return int32(n), nil
}

// PriorityOf is the class of a grant of the profile of that name, or of none, whose pod has a priority of its own: the
// profile's if it says one. A profile that the document no longer has leaves it to the pod.
func (c Config) PriorityOf(profile string, pod int32) int32 {
	p, _ := c.Profile(profile)
	return cmp.Or(p.Priority, pod)
}

// priority checks what a profile says of its class.
func (c *checker) priority(path string, n int32) {
	if n < -MaxPriority || n > MaxPriority {
		c.bad(path, strconv.FormatInt(int64(n), 10), "write a whole number from -1000000000 to 1000000000", "is not a priority")
	}
}
