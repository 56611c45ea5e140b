// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

// judgeVideo settles what is known of a part's encoding and decoding, where the GPU tells of it at all.
func (p *part) judgeVideo(d Device, alone bool) {
	amount := func(of Reading[Ratio], sum Ratio) Amount[Ratio] {
		switch {
		case !of.Known || !d.Listed || p.fragment.Slot != nil:
			return Amount[Ratio]{}
		case len(p.pids) == 0:
			return Amount[Ratio]{0, ByProcess}
		case d.Timed && !p.untimed:
			return Amount[Ratio]{sum, ByProcess}
		case alone && p.fragment.Whole:
			return Amount[Ratio]{of.Value, ByInstance}
		case alone:
			return Amount[Ratio]{of.Value, ByDeviceShare}
		}
		return Amount[Ratio]{}
	}
	p.use.Engines.Encoder, p.use.Engines.Decoder = amount(d.Encoder, p.enc), amount(d.Decoder, p.dec)
}

// divideEngines gives each its instance's tensor activity and occupancy, or of the GPU's as much as it has of the time in
// which the GPU worked: an idle GPU has neither.
func (s *Sample) divideEngines(d Device, parts, all []*part) {
	worked := Ratio(0)
	for _, p := range all {
		worked += p.use.SM.Value
	}
	worked = max(worked, d.SM.Value)
	for i, p := range parts {
		amount := func(whole Reading[Ratio], of func(*Instance) Reading[Ratio]) Amount[Ratio] {
			switch in := p.instance; {
			case p.fragment.Slot != nil:
				if in != nil && of(in).Known && !p.shared {
					return Amount[Ratio]{of(in).Value * in.Compute, ByInstance}
				}
			case p.fragment.Whole && len(parts) == 1 && d.Listed && whole.Known && !others(p, all):
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
	s.Strangers.Engines.Tensor = byTime(d.Tensor, s.Strangers.SM, worked)
	s.Strangers.Engines.Occupancy = byTime(d.Occupancy, s.Strangers.SM, worked)
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
