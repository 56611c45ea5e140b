// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

// Class is what an entry point means for a count of device memory, and of the GPU's time.
type Class string

// The classes.
const (
	// Charge allocates device memory, at once or, in a graph, at its launch.
	Charge Class = "charge"
	// Release gives device memory back, to the driver or to a pool.
	Release Class = "release"
	// Track allocates nothing itself and decides when, where or for how long memory is held: mappings keep a
	// released handle's memory, pools and graphs keep what was freed.
	Track Class = "track"
	// Size tells how much memory there is or is used, and so has to tell of the cap.
	Size Class = "size"
	// Resolve gives the addresses of other entry points.
	Resolve Class = "resolve"
	// Overhead makes the driver hold memory of an amount that only the driver knows: contexts, modules, heaps,
	// managed memory that moves in.
	Overhead Class = "overhead"
	// Foreign maps memory that was allocated elsewhere: by another process or another API.
	Foreign Class = "foreign"
	// Time has the GPU do something, and so has to wait for the share of its time. Graphs' launches are Track.
	Time Class = "time"
	// Host allocates, frees or pins memory of the host.
	Host Class = "host"
	// None belongs to these families by name alone, and changes no amount.
	None Class = "none"
)

// classes are all of them.
func classes() []Class {
	return []Class{Charge, Release, Track, Size, Resolve, Overhead, Foreign, Time, Host, None}
}
