// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package backend

import "github.com/kerf-gpu/kerf/sharing"

// Watch says when the reactive backend watches the caps of another backend, too.
type Watch uint8

// The rules.
const (
	WatchNever Watch = iota
	// WatchListed: if the pool lists the reactive backend.
	WatchListed
	WatchAlways
)

// Properties say how a backend enforces caps, for code that measures use or changes amounts.
type Properties struct {
	Watch Watch
	// CanBurst is true if the cap of running programs can become smaller again, so that free memory can serve as burst
	// memory.
	CanBurst bool
	// Counts is true if programs count their memory and their GPU time themselves.
	Counts bool
	// Served is true if a server process of the backend uses the GPU for its programs. Each program keeps the cap that
	// it started with, and the sum over programs has none. The GPU has no shares of other backends meanwhile.
	Served bool
	// Misses says what memory the cap does not count, and Remedy what to do about it; empty if another backend watches.
	Misses, Remedy string
}

// PropertiesOf are those of a backend.
func PropertiesOf(b sharing.Backend) Properties {
	switch b {
	case sharing.BackendDriver:
		return Properties{
			CanBurst: true, Misses: "the driver's limit does not count what another grant made and handed over",
			Remedy: "give such a program a MIG instance or a whole GPU",
		}
	case sharing.BackendMPS:
		return Properties{Watch: WatchAlways, Served: true}
	case sharing.BackendLibkerf:
		return Properties{
			Watch: WatchListed, CanBurst: true, Counts: true,
			Misses: "the driver allocated it for the program without a call of libkerf",
			Remedy: "put reactive behind libkerf in the pool's backends to have it watched",
		}
	case sharing.BackendReactive:
		return Properties{Watch: WatchAlways, CanBurst: true}
	case sharing.BackendNone:
	}
	return Properties{}
}
