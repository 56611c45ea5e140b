// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import "github.com/kerf-gpu/kerf/sharing"

// divideEnergy gives each the energy of the time that the GPU worked for it. A GPU that was granted whole and that
// nothing else uses is its grant's, idle or not; else what it draws while it is idle is nobody's.
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
		case p.fragment.Whole && len(parts) == 1 && d.Listed && !others(p, all):
			s.Grants[i].Energy = Amount[Joules]{d.Energy.Value, ByInstance}
		case p.use.SM.Known():
			s.Grants[i].Energy = Amount[Joules]{d.Energy.Value * Joules(p.use.SM.Value/busy), ByDeviceShare}
		}
	}
	if s.Strangers.SM.Known() {
		s.Strangers.Energy = Amount[Joules]{d.Energy.Value * Joules(s.Strangers.SM.Value/busy), ByDeviceShare}
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
	take(of(s.Strangers))
	return rest, excess
}
