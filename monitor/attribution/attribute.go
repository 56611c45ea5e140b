// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"cmp"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Sample is one GPU's use, divided.
type Sample struct {
	GPU sharing.GPUID
	// Grants has each share of an attachment on the GPU, by grant and instance.
	Grants []GrantUse
	// Unmanaged is the use of processes that no attachment accounts for here, and UnmanagedPIDs are they, in order.
	Unmanaged     Use
	UnmanagedPIDs []int
	// Rest is usage without an owner. Its processes are those with an unknown cgroup.
	Rest Use
	// Excess is the sum of the owners minus the GPU's total, if positive. The driver's answers may be from different
	// moments.
	Excess Excess
}

// GrantUse is one grant's use of one GPU, or of one MIG instance of it.
type GrantUse struct {
	Grant string
	// Instance is the zero value for a share of the GPU itself.
	Instance sharing.InstanceRef
	Use
}

// Excess is what parts are more than their whole.
type Excess struct {
	Memory   sharing.Bytes
	SM, DRAM Ratio
}

// part gathers what belongs to one owner.
type part struct {
	grant    string
	share    Share
	instance *Instance // the share's, while it is there
	shared   bool      // the instance has processes of others, too
	pids     []int
	memory   sharing.Bytes
	unknown  bool // has a process with unknown memory
	untimed  bool // one whose activity is not
	sm, dram Ratio
	enc, dec Ratio
	use      Use
}

// Attribute divides one GPU's usage among the attachments. Attachments without a share on the GPU own nothing of it.
// Their processes are unmanaged processes there, as are those on another MIG instance than their own.
func Attribute(d Device, attachments []Attachment) Sample {
	if !slices.IsSortedFunc(attachments, deepest) {
		attachments = slices.Clone(attachments)
		SortAttachments(attachments)
	}
	var parts []*part
	for _, l := range attachments {
		for _, f := range l.Shares {
			if f.GPU.UUID == d.GPU {
				parts = append(parts, &part{grant: l.Grant, share: f, instance: d.instance(f.GPU.Instance)})
			}
		}
	}
	slices.SortFunc(parts, func(a, b *part) int {
		x, y := a.share.GPU.Instance, b.share.GPU.Instance
		return cmp.Or(cmp.Compare(a.grant, b.grant), cmp.Compare(x.Start, y.Start), cmp.Compare(x.Profile, y.Profile))
	})
	unmanaged, rest := &part{}, &part{}
	divideProcesses(d.Processes, attachments, parts, unmanaged, rest)
	s := Sample{GPU: d.GPU, UnmanagedPIDs: unmanaged.sorted()}
	all := append(slices.Clone(parts), unmanaged, rest)
	s.Grants = make([]GrantUse, 0, len(parts))
	for _, p := range parts {
		alone := alone(p, all)
		p.judge(d, alone)
		p.judgeVideo(d, alone)
		s.Grants = append(s.Grants, GrantUse{p.grant, p.share.GPU.Instance, p.use})
	}
	unmanaged.judge(d, false)
	unmanaged.judgeVideo(d, false)
	s.Unmanaged = unmanaged.use
	s.Rest.Processes = len(rest.sorted())
	s.divideEnergy(d, parts, all)
	s.divideEngines(d, parts, all)
	s.leave(d)
	return s
}

// SortAttachments brings attachments into the order in which Attribute needs them: for many GPUs that is done once.
func SortAttachments(attachments []Attachment) { slices.SortStableFunc(attachments, deepest) }

// deepest orders attachments so that the deepest cgroup decides, should one attachment's ever be below another's.
func deepest(a, b Attachment) int { return cmp.Compare(len(b.Cgroup), len(a.Cgroup)) }

// divideProcesses gives each process to its owner.
func divideProcesses(all []Process, attachments []Attachment, parts []*part, unmanaged, rest *part) {
	owners := map[string]int{} // by cgroup, which processes share
	for len(all) > 0 {
		// Those of one program come one after the other, and have one owner.
		p, run := &all[0], 1
		for run < len(all) && all[run].GI == p.GI && all[run].Cgroup == p.Cgroup {
			run++
		}
		owning, seen := owners[p.Cgroup]
		if !seen {
			owning = slices.IndexFunc(attachments, func(l Attachment) bool { return l.owns(p.Cgroup) })
			owners[p.Cgroup] = owning
		}
		owner := unmanaged
		switch {
		case p.Cgroup == "":
			owner = rest
		case owning >= 0:
			owner = ownerOf(p.GI, attachments[owning].Grant, parts, unmanaged)
		}
		owner.take(all[:run])
		all = all[run:]
		for _, other := range parts {
			if other != owner && other.instance != nil && other.instance.GI == p.GI {
				other.shared = true
			}
		}
	}
}

// ownerOf finds the part of a grant that its process on an instance belongs to.
func ownerOf(gi int, grant string, parts []*part, unmanaged *part) *part {
	j := slices.IndexFunc(parts, func(o *part) bool { return o.grant == grant && o.has(gi) })
	if j < 0 {
		return unmanaged
	}
	return parts[j]
}

// alone reports whether p is the only one with processes on the GPU.
func alone(p *part, all []*part) bool { return len(p.pids) > 0 && !others(p, all) }

// others reports whether anybody but p has processes on the GPU.
func others(p *part, all []*part) bool {
	return slices.ContainsFunc(all, func(o *part) bool { return o != p && len(o.pids) > 0 })
}

// instance finds the MIG instance of a share; nil if it has none, or it is not there.
func (d Device) instance(ref sharing.InstanceRef) *Instance {
	i := slices.IndexFunc(d.Instances, func(in Instance) bool { return !ref.None() && in.Ref == ref })
	if i < 0 {
		return nil
	}
	return &d.Instances[i]
}

// has reports whether a process of the part's attachment on that instance is within its share. Where the driver does
// not say the instance, the process is taken for its attachment's.
func (p *part) has(gi int) bool {
	return !p.share.GPU.IsInstance() || gi == NoInstance || p.instance != nil && p.instance.GI == gi
}

// take adds processes.
func (p *part) take(all []Process) {
	p.pids = slices.Grow(p.pids, len(all))
	for i := range all {
		r := &all[i]
		p.pids = append(p.pids, r.PID)
		p.sm, p.dram = p.sm+r.SM, p.dram+r.DRAM
		p.enc, p.dec = p.enc+r.Encoder, p.dec+r.Decoder
		p.untimed = p.untimed || r.Untimed
		sum, err := p.memory.Add(r.Memory.Value)
		if !r.Memory.Known || err != nil {
			p.unknown = true
			continue
		}
		p.memory = sum
	}
}

// sorted are the part's processes, each once.
func (p *part) sorted() []int {
	slices.Sort(p.pids)
	p.pids = slices.Compact(p.pids)
	return p.pids
}

// judge settles what is known of the part's use but its energy.
func (p *part) judge(d Device, alone bool) {
	p.use.Processes = len(p.sorted())
	whole := ByDeviceShare
	if p.share.Whole {
		whole = ByInstance
	}
	in := p.instance
	switch {
	case in != nil && in.Memory.Known && !p.shared:
		p.use.Memory = Amount[sharing.Bytes]{in.Memory.Value, ByInstance}
	case d.Listed && !p.unknown:
		p.use.Memory = Amount[sharing.Bytes]{p.memory, ByProcess}
	case d.Listed && alone && d.Memory.Known && !p.share.GPU.IsInstance():
		p.use.Memory = Amount[sharing.Bytes]{d.Memory.Value, whole}
	}
	activity := func(sum Ratio, of Reading[Ratio], part func(*Instance) Reading[Ratio]) Amount[Ratio] {
		switch {
		case p.share.GPU.IsInstance():
			if in != nil && part(in).Known && !p.shared {
				return Amount[Ratio]{part(in).Value * in.Compute, ByInstance}
			}
		case d.Listed && len(p.pids) == 0:
			return Amount[Ratio]{0, ByProcess}
		case d.Listed && alone && of.Known:
			return Amount[Ratio]{of.Value, whole}
		case d.Timed && !p.untimed:
			return Amount[Ratio]{sum, ByProcess}
		}
		return Amount[Ratio]{}
	}
	p.use.SM = activity(p.sm, d.SM, func(i *Instance) Reading[Ratio] { return i.SM })
	p.use.DRAM = activity(p.dram, d.DRAM, func(i *Instance) Reading[Ratio] { return i.DRAM })
}

// divideEnergy attributes energy by the time that the GPU worked for each. If one grant has the whole GPU and nothing
// else uses it, that grant gets all energy. Otherwise idle energy has no owner.
func (s *Sample) divideEnergy(d Device, parts, all []*part) {
	if !d.Energy.Known {
		return
	}
	var busy Ratio
	for _, p := range all {
		busy += p.use.SM.Value
	}
	busy = max(busy, 1)
	for i, p := range parts {
		switch {
		case p.share.Whole && len(parts) == 1 && d.Listed && !others(p, all):
			s.Grants[i].Energy = Amount[Joules]{d.Energy.Value, ByInstance}
		case p.use.SM.Known():
			s.Grants[i].Energy = Amount[Joules]{d.Energy.Value * Joules(p.use.SM.Value/busy), ByDeviceShare}
		}
	}
	if s.Unmanaged.SM.Known() {
		s.Unmanaged.Energy = Amount[Joules]{d.Energy.Value * Joules(s.Unmanaged.SM.Value/busy), ByDeviceShare}
	}
}

// leave settles what is left of the GPU's values.
func (s *Sample) leave(d Device) {
	s.Rest.Memory, s.Excess.Memory = left(d.Memory, s, func(u Use) Amount[sharing.Bytes] { return u.Memory })
	s.Rest.SM, s.Excess.SM = left(d.SM, s, func(u Use) Amount[Ratio] { return u.SM })
	s.Rest.DRAM, s.Excess.DRAM = left(d.DRAM, s, func(u Use) Amount[Ratio] { return u.DRAM })
	s.Rest.Energy, _ = left(d.Energy, s, func(u Use) Amount[Joules] { return u.Energy })
	s.Rest.Engines.Encoder, _ = left(d.Encoder, s, func(u Use) Amount[Ratio] { return u.Engines.Encoder })
	s.Rest.Engines.Decoder, _ = left(d.Decoder, s, func(u Use) Amount[Ratio] { return u.Engines.Decoder })
	s.Rest.Engines.Tensor, _ = left(d.Tensor, s, func(u Use) Amount[Ratio] { return u.Engines.Tensor })
	s.Rest.Engines.Occupancy, _ = left(d.Occupancy, s, func(u Use) Amount[Ratio] { return u.Engines.Occupancy })
}

// left subtracts the parts that are known from the whole.
func left[T Quantity](whole Reading[T], s *Sample, of func(Use) Amount[T]) (rest Amount[T], excess T) {
	if !whole.Known {
		return Amount[T]{}, 0
	}
	rest = Amount[T]{whole.Value, Unattributed}
	take := func(a Amount[T]) {
		// Never below zero, which an unsigned type does not have.
		part := min(a.Value, rest.Value)
		rest.Value -= part
		excess += a.Value - part
	}
	for _, g := range s.Grants {
		take(of(g.Use))
	}
	take(of(s.Unmanaged))
	return rest, excess
}
