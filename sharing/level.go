// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

// Level is an enforcement level: how strongly a grant is held to its size. It is always shown and never
// overstated.
type Level uint8

// The levels, weakest first. LevelUnknown is not a rank: it satisfies no demand but "none" and is shown if the level
// cannot be determined.
const (
	// LevelUnknown: the level cannot be determined.
	LevelUnknown Level = iota
	// LevelNone: nothing holds the grant to its size.
	LevelNone
	// LevelReactive: watched through NVML and acted on; overshoot is possible for one interval.
	LevelReactive
	// LevelUserspace: MPS limit or preloaded library; holds while the process plays along.
	LevelUserspace
	// LevelDriver: the driver refuses allocations past the cap (NVML cgroup memory limit).
	LevelDriver
	// LevelHardware: a MIG instance.
	LevelHardware
	// LevelExclusive: a whole GPU; no other grant is on it.
	LevelExclusive
)

// String returns the level's name as users write and read it.
func (l Level) String() string {
	switch l {
	case LevelNone:
		return "none"
	case LevelReactive:
		return "reactive"
	case LevelUserspace:
		return "userspace"
	case LevelDriver:
		return "driver"
	case LevelHardware:
		return "hardware"
	case LevelExclusive:
		return "exclusive"
	case LevelUnknown:
	}
	return "unknown"
}

// AtLeast reports whether a grant at level l satisfies a demand for least. Exclusive and hardware satisfy
// each other: both keep neighbours out by construction. An unknown level satisfies only the demand "none"
// or no demand (LevelUnknown).
func (l Level) AtLeast(least Level) bool {
	switch {
	case least == LevelUnknown || least == LevelNone:
		return true
	case l == LevelUnknown:
		return false
	case least == LevelExclusive:
		return l >= LevelHardware
	default:
		return l >= least
	}
}

// AllowUnenforced is what an admin does about a share that is rejected because no backend enforces it, as an
// imperative.
const AllowUnenforced = "set minEnforcement: none on the pool to grant shares without enforcement"

// LeastOfShare is the level that a share of a GPU must have: the highest of the demands. Where all are LevelUnknown, it
// is LevelReactive: only an explicit LevelNone allows a share that nothing enforces.
func LeastOfShare(demands ...Level) Level {
	least := LevelUnknown
	for _, d := range demands {
		least = max(least, d)
	}
	if least == LevelUnknown {
		return LevelReactive
	}
	return least
}

// ShareLevel is the strongest of the levels that a share of a GPU can have; LevelUnknown if there is none. Exclusive
// and hardware are levels of other grants.
func ShareLevel(levels []Level) Level {
	best := LevelUnknown
	for _, l := range levels {
		if l < LevelHardware {
			best = max(best, l)
		}
	}
	return best
}

// ParseLevels reads the names that are levels, and leaves the others out.
func ParseLevels(names []string) []Level {
	var out []Level
	for _, name := range names {
		if l, err := ParseLevel("levels", name); err == nil {
			out = append(out, l)
		}
	}
	return out
}

// OldLevelUserspace is the name that LevelUserspace had up to config version v1alpha1. ParseLevel reads it for one
// release. The checkpoint has it, because the agent to which a node may roll back reads no other.
const OldLevelUserspace = "client"

// ParseLevel reads a level's name; field names the input for the error.
func ParseLevel(field, s string) (Level, error) {
	if s == OldLevelUserspace {
		return LevelUserspace, nil
	}
	for l := LevelNone; l <= LevelExclusive; l++ {
		if l.String() == s {
			return l, nil
		}
	}
	return LevelUnknown, Invalid(field, s, "write one of exclusive, hardware, driver, userspace, reactive, none",
		"is not an enforcement level")
}
