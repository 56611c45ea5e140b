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

// PriorityOf is the class of a grant of the profile of that name, or of none, whose pod has the priority pod. It is the
// profile's if that sets one. A profile that the config no longer has leaves it to the pod.
func (c Config) PriorityOf(profile string, pod int32) int32 {
	p, _ := c.Profile(profile)
	return cmp.Or(p.Priority, pod)
}

// priority checks what a profile says of its class.
func (c *checker) priority(path string, n int32) {
	if n < -MaxPriority || n > MaxPriority {
		c.bad(path, strconv.FormatInt(int64(n), 10), "write a whole number from -1000000000 to 1000000000",
			"is not a priority")
	}
}

// MaxQuotaGrants bounds UserQuota.Grants.
const MaxQuotaGrants = 1_000_000

func parseQuotaGrants(field, s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > MaxQuotaGrants {
		return 0, sharing.Invalid(field, s, "write a number from 1 to "+strconv.Itoa(MaxQuotaGrants)+
			", or leave it out", "is not a number of grants")
	}
	return n, nil
}

// quotaField is what one user may be granted on a node.
func quotaField(to *sharing.UserQuota) field {
	f := object(to, func() fields {
		return named(to, fields{
			whole(&to.Grants, parseQuotaGrants, 1, MaxQuotaGrants, "The maximum number of grants of a user.").like(
				"4").def("no limit"),
			size(&to.Memory, "The maximum guaranteed memory of all grants of a user.").like("40GiB").def("no limit"),
		})
	}, "What each user may have on a node at a time through `kerf run` and the node API. It does not apply to root "+
		"and pods.").def("no quota")
	f.Type.Example = "{grants: 4, memory: 40GiB}"
	return f
}

// quota checks what one user may be granted.
func (c *checker) quota(path string, q sharing.UserQuota) {
	if q.Grants < 0 || q.Grants > MaxQuotaGrants {
		c.bad(path+".grants", strconv.Itoa(q.Grants), "write a number from 1 to "+strconv.Itoa(MaxQuotaGrants)+
			", or leave it out", "is not a number of grants")
	}
}

// OverCap is what happens to an attachment that uses more than its cap where nothing stronger than watching holds it.
type OverCap uint8

// The over-cap policies.
const (
	// OverCapDefault: of a profile, that of the pool; of a pool, DefaultOverCap.
	OverCapDefault OverCap = iota
	// OverCapWarn: it is reported in the log, in status and in metrics.
	OverCapWarn
	// OverCapKill: processes of the attachment are killed until it is within its cap, the one that holds the most
	// first.
	OverCapKill
	// OverCapEvict deletes the pod of the grant, with the grace period that it requests. For a grant of no pod it does
	// as OverCapKill. Kubernetes must have given the agent the right to it.
	OverCapEvict
)

// DefaultOverCap is the policy of a pool that has none. The backends that it concerns (libkerf, MPS, reactive) are
// those that a program can bypass or outrun, so that a warning alone would enforce nothing.
const DefaultOverCap = OverCapKill

// String returns "warn", "kill" or "evict".
func (o OverCap) String() string {
	switch o {
	case OverCapWarn:
		return "warn"
	case OverCapEvict:
		return "evict"
	case OverCapDefault, OverCapKill:
	}
	return "kill"
}

// ParseOverCap reads "warn", "kill" or "evict"; field names the input for the error, a *sharing.FieldError.
func ParseOverCap(field, s string) (OverCap, error) {
	for _, o := range []OverCap{OverCapWarn, OverCapKill, OverCapEvict} {
		if o.String() == s {
			return o, nil
		}
	}
	return OverCapDefault, sharing.Invalid(field, s, "write warn, kill or evict", "is not an over-cap policy")
}

// OverCapOf is the policy for a grant of the profile of that name, or of none, in the pool. It is never OverCapDefault.
// A profile that the config no longer has leaves it to the pool.
func (c Config) OverCapOf(pool Pool, profile string) OverCap {
	if p, ok := c.Profile(profile); ok && p.OverCap != OverCapDefault {
		return p.OverCap
	}
	if pool.OverCap != OverCapDefault {
		return pool.OverCap
	}
	return DefaultOverCap
}

// OnUnmanagedProcess is what happens to processes that use a GPU of the node without a grant on it.
type OnUnmanagedProcess uint8

// The policies for unmanaged processes.
const (
	// UnmanagedWarn: status and an event name them (the default).
	UnmanagedWarn OnUnmanagedProcess = iota
	// UnmanagedKill: they are killed, except the driver's own and uncertain ones.
	UnmanagedKill
)

// String returns "warn" or "kill".
func (s OnUnmanagedProcess) String() string {
	switch s {
	case UnmanagedKill:
		return "kill"
	case UnmanagedWarn:
	}
	return "warn"
}

// ParseOnUnmanagedProcess reads "warn" or "kill"; field names the input for the error, a *sharing.FieldError.
func ParseOnUnmanagedProcess(field, s string) (OnUnmanagedProcess, error) {
	for _, v := range []OnUnmanagedProcess{UnmanagedWarn, UnmanagedKill} {
		if v.String() == s {
			return v, nil
		}
	}
	return UnmanagedWarn, sharing.Invalid(field, s, "write warn or kill", "is not a policy for unmanaged processes")
}
