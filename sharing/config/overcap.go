// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/kerf-gpu/kerf/sharing"

// OverCap is what happens to a lease that uses more than its cap where nothing stronger than watching holds it.
type OverCap uint8

// The over-cap policies.
const (
	// OverCapDefault: of a profile, that of the pool; of a pool, DefaultOverCap.
	OverCapDefault OverCap = iota
	// OverCapWarn: it is told in the log, in status and in metrics.
	OverCapWarn
	// OverCapKill: processes of the lease are killed until it is within its cap, the one that holds the most
	// first.
	OverCapKill
	// OverCapEvict: the pod of the lease is deleted, with the grace that it asks for; a lease of no pod is dealt with
	// as by OverCapKill. Kubernetes must have given the agent the right to it.
	OverCapEvict
)

// DefaultOverCap is the policy of a pool that has none. The backends that it concerns (libkerf, MPS, reactive) are those that a
// program can bypass or outrun, so that a warning alone would enforce nothing.
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

// OverCapOf is the policy for a grant of the profile of that name, or of none, in the pool. It is never
// OverCapDefault. A profile that the document no longer has leaves it to the pool.
func (c Config) OverCapOf(pool Pool, profile string) OverCap {
	if p, ok := c.Profile(profile); ok && p.OverCap != OverCapDefault {
		return p.OverCap
	}
	if pool.OverCap != OverCapDefault {
		return pool.OverCap
	}
	return DefaultOverCap
}

// Strangers is what happens to processes that use a GPU of the node without a grant on it.
type Strangers uint8

// The policies for strangers.
const (
	// StrangersReport: status names them (the default).
	StrangersReport Strangers = iota
	// StrangersKill: they are killed, but for what is the driver's own or cannot be told for sure.
	StrangersKill
)

// String returns "report" or "kill".
func (s Strangers) String() string {
	switch s {
	case StrangersKill:
		return "kill"
	case StrangersReport:
	}
	return "report"
}

// ParseStrangers reads "report" or "kill"; field names the input for the error, a *sharing.FieldError.
func ParseStrangers(field, s string) (Strangers, error) {
	for _, v := range []Strangers{StrangersReport, StrangersKill} {
		if v.String() == s {
			return v, nil
		}
	}
	return StrangersReport, sharing.Invalid(field, s, "write report or kill", "is not a policy for strangers")
}
