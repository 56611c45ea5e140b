// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import "github.com/kerf-gpu/kerf/sharing"

// Ratio is a part of a whole GPU, 0 to 1.
type Ratio float64

// Joules is energy.
type Joules float64

// Quantity is what can be attributed.
type Quantity interface {
	sharing.Bytes | Ratio | Joules
}

// Reading is what a source told. The zero value: it told nothing.
type Reading[T Quantity] struct {
	Value T
	Known bool
}

// Told is a reading with a value.
func Told[T Quantity](v T) Reading[T] { return Reading[T]{v, true} }

// How says how an amount is known.
type How uint8

// The ways, the zero value first: Unknown means that there is no amount.
const (
	Unknown How = iota
	// ByProcess: summed over the processes, each of which the driver told.
	ByProcess
	// ByInstance: the value of a MIG instance, or of a GPU that was granted whole and that nothing else uses.
	ByInstance
	// ByDeviceShare: a part of the GPU's value, in proportion to the time that it worked for each; all of it while
	// nothing else uses the GPU.
	ByDeviceShare
	// Unattributed: what is left of the GPU's value.
	Unattributed
)

// String returns the word that labels and messages use.
func (h How) String() string {
	switch h {
	case ByProcess:
		return "process"
	case ByInstance:
		return "instance"
	case ByDeviceShare:
		return "device-share"
	case Unattributed:
		return "unattributed"
	case Unknown:
	}
	return "unknown"
}

// Amount is a value and how it is known. The zero value: it is not known.
type Amount[T Quantity] struct {
	Value T
	How   How
}

// Known reports whether there is a value.
func (a Amount[T]) Known() bool { return a.How != Unknown }

// Engines are amounts of parts of a GPU, 0 to 1 of the whole GPU.
type Engines struct {
	// Encoder and Decoder are the parts of the time in which video was worked at.
	Encoder, Decoder Amount[Ratio]
	// Tensor is the part of the time in which the tensor pipe was active, and Occupancy the part of the most warps that
	// could have been resident.
	Tensor, Occupancy Amount[Ratio]
}

// Use is what something used of one GPU over one interval.
type Use struct {
	// Memory is what it held at the interval's end.
	Memory Amount[sharing.Bytes]
	// SM is the part of the time in which its work ran, and DRAM in which the GPU's memory was read or written for it.
	// Of a MIG instance they are parts of the whole GPU, too.
	SM, DRAM Amount[Ratio]
	Energy   Amount[Joules]
	// Engines are the parts of the GPU that not every program uses.
	Engines Engines
	// Processes is how many of its processes were on the GPU.
	Processes int
}
