// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package attribution finds the owner of a GPU's usage. It joins the driver's report of a GPU, its MIG instances and
// its processes with the attachments of the node.
//
// It promises:
//
//   - Every value has its source. An unknown value is absent, and never zero.
//   - Nothing counts twice and nothing is lost. Grants, unmanaged processes and unattributed usage add up to the
//     GPU's total, exactly in memory and within rounding in the others. If the sum exceeds the total, Sample.Excess is
//     the difference.
//   - A value is never divided by guess. Only energy, tensor activity and occupancy are divided, by working time,
//     and are marked so.
//
// It reads nothing itself: callers provide the driver's values and the cgroups of processes. It identifies a process
// within one sample only, so a reused pid belongs to its present process.
package attribution

import (
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// NoInstance is the GPU instance of a process that is on none, or of which the driver does not say.
const NoInstance = -1

// Device has the driver's values of one GPU. Activity and energy cover the interval that ends with the sample; the
// activity of processes may cover a longer one.
type Device struct {
	GPU sharing.GPUID
	// Memory is what is in use, without the driver's own part.
	Memory   Reading[sharing.Bytes]
	SM, DRAM Reading[Ratio]
	Energy   Reading[Joules]
	// Encoder, Decoder, Tensor and Occupancy are as in Engines.
	Encoder, Decoder, Tensor, Occupancy Reading[Ratio]
	// Listed is true if Processes is the whole list. Timed is true if it has their activity: a process without any then
	// had none, unless it is Untimed.
	Listed, Timed bool
	Processes     []Process
	// Instances are the MIG instances there are.
	Instances []Instance
}

// Instance has the driver's values of one MIG instance.
type Instance struct {
	GI     int
	Ref    sharing.InstanceRef
	Memory Reading[sharing.Bytes]
	// SM and DRAM are parts of the instance, and Compute is the instance's part of the GPU's compute.
	SM, DRAM Reading[Ratio]
	Compute  Ratio
	// Tensor and Occupancy are of the instance, too.
	Tensor, Occupancy Reading[Ratio]
}

// Process is one process on a GPU or, in MIG mode, on one instance of it.
type Process struct {
	PID int
	// GI is the GPU instance's id, or NoInstance.
	GI       int
	Memory   Reading[sharing.Bytes]
	SM, DRAM Ratio
	// Encoder and Decoder count if the Device's are known.
	Encoder, Decoder Ratio
	// Untimed is true if the activity of this process is unknown.
	Untimed bool
	// Cgroup is the absolute directory of the process's cgroup; empty if unknown, for example after its end.
	Cgroup string
}

// Attachment is a grant in use.
type Attachment struct {
	Grant string
	// Cgroup is the absolute directory of the attachment; what is below belongs to it.
	Cgroup string
	Shares []Share
}

// Share is a grant's part of one GPU. A grant has several on one GPU only where they are MIG instances.
type Share struct {
	// GPU is the GPU, or the MIG instance that the share is or is a share of.
	GPU   sharing.GPURef
	Whole bool
}

// owns reports whether a process of that cgroup is the attachment's.
func (l Attachment) owns(dir string) bool {
	rest, ok := strings.CutPrefix(dir, l.Cgroup)
	return ok && l.Cgroup != "" && (rest == "" || rest[0] == '/')
}

// Ratio is a part of a whole GPU, 0 to 1.
type Ratio float64

// Joules is energy.
type Joules float64

// Quantity is what can be attributed.
type Quantity interface {
	sharing.Bytes | Ratio | Joules
}

// Reading is a value of a source. The zero value has none.
type Reading[T Quantity] struct {
	Value T
	Known bool
}

// Known returns a reading with a value.
func Known[T Quantity](v T) Reading[T] { return Reading[T]{v, true} }

// How says how an amount is known.
type How uint8

// The ways, the zero value first: Unknown means that there is no amount.
const (
	Unknown How = iota
	// ByProcess is the sum over the processes, each with a known value.
	ByProcess
	// ByInstance: the value of a MIG instance, or of a GPU that was granted whole and that nothing else uses.
	ByInstance
	// ByDeviceShare is a part of the GPU's value, in proportion to the time that it worked for each. If nothing else
	// uses the GPU, it is all of it.
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
	// Tensor is the part of the time in which the tensor pipe was active. Occupancy is the part of the most warps that
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

// judgeVideo settles what is known of a part's encoding and decoding, where the GPU tells of it at all.
func (p *part) judgeVideo(d Device, alone bool) {
	amount := func(of Reading[Ratio], sum Ratio) Amount[Ratio] {
		switch {
		case !of.Known || !d.Listed || p.share.GPU.IsInstance():
			return Amount[Ratio]{}
		case len(p.pids) == 0:
			return Amount[Ratio]{0, ByProcess}
		case d.Timed && !p.untimed:
			return Amount[Ratio]{sum, ByProcess}
		case alone && p.share.Whole:
			return Amount[Ratio]{of.Value, ByInstance}
		case alone:
			return Amount[Ratio]{of.Value, ByDeviceShare}
		}
		return Amount[Ratio]{}
	}
	p.use.Engines.Encoder, p.use.Engines.Decoder = amount(d.Encoder, p.enc), amount(d.Decoder, p.dec)
}

// divideEngines gives each its instance's tensor activity and occupancy. Otherwise each gets the GPU's, by its part of
// the GPU's working time: an idle GPU has neither.
func (s *Sample) divideEngines(d Device, parts, all []*part) {
	worked := Ratio(0)
	for _, p := range all {
		worked += p.use.SM.Value
	}
	worked = max(worked, d.SM.Value)
	for i, p := range parts {
		amount := func(whole Reading[Ratio], of func(*Instance) Reading[Ratio]) Amount[Ratio] {
			switch in := p.instance; {
			case p.share.GPU.IsInstance():
				if in != nil && of(in).Known && !p.shared {
					return Amount[Ratio]{of(in).Value * in.Compute, ByInstance}
				}
			case p.share.Whole && len(parts) == 1 && d.Listed && whole.Known && !others(p, all):
				return Amount[Ratio]{whole.Value, ByInstance}
			default:
				return byTime(whole, p.use.SM, worked)
			}
			return Amount[Ratio]{}
		}
		e := &s.Grants[i].Engines
		e.Tensor = amount(d.Tensor, func(in *Instance) Reading[Ratio] { return in.Tensor })
		e.Occupancy = amount(d.Occupancy, func(in *Instance) Reading[Ratio] { return in.Occupancy })
	}
	s.Unmanaged.Engines.Tensor = byTime(d.Tensor, s.Unmanaged.SM, worked)
	s.Unmanaged.Engines.Occupancy = byTime(d.Occupancy, s.Unmanaged.SM, worked)
}

// byTime is one's part of a value by its part of the time in which the GPU worked.
func byTime(whole Reading[Ratio], sm Amount[Ratio], worked Ratio) Amount[Ratio] {
	switch {
	case !whole.Known || !sm.Known():
		return Amount[Ratio]{}
	case worked == 0:
		return Amount[Ratio]{0, ByDeviceShare}
	}
	return Amount[Ratio]{whole.Value * sm.Value / worked, ByDeviceShare}
}
