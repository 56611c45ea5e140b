// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import "slices"

// plan follows the choices that were best.
func (s *search) plan() Plan {
	p := Plan{Answers: make([]Answer, len(s.Wishes))}
	choices := make([]choice, len(s.Wishes))
	taken, served, made := s.fixed, uint32(0), uint64(0)
	for i := range s.Wishes {
		c := s.best(i, taken, served, made).choice
		choices[i] = c
		if c.served && c.busy == 0 {
			taken, _ = s.Table.Try(taken, c.place) // it fitted when it was chosen
			made += s.digits[i]
		}
		served |= c.busy
	}
	stay := s.stay(taken)
	for _, i := range s.idle {
		in := s.Have[i]
		reused := slices.ContainsFunc(choices, func(c choice) bool { return c.served && c.reuse == i })
		switch {
		case reused && !in.Ready:
			p.Steps = append(p.Steps, destroyCIs(in)...)
		case !reused && !slices.Contains(stay, i):
			p.Steps = append(p.Steps, append(destroyCIs(in), Step{DestroyGI, in.Place, in.GI, -1})...)
		}
	}
	for i, c := range choices {
		if c.served {
			steps := s.create(c)
			p.Steps = append(p.Steps, steps...)
			p.Answers[i] = Answer{State: Made, Place: c.place}
			if len(steps) == 0 {
				p.Answers[i].State = Ready
			}
		}
	}
	s.explain(p.Answers, choices)
	for bit, i := range s.busy {
		if s.Exact && served&(1<<bit) == 0 {
			p.Left = append(p.Left, Left{s.Have[i].Place, slices.Clone(s.Have[i].Holders)})
		}
	}
	return p
}

// destroyCIs comes before an instance is destroyed, as the driver demands, and before it gets the one compute
// instance that it should have.
func destroyCIs(in Instance) []Step {
	var steps []Step
	for _, ci := range in.CIs {
		steps = append(steps, Step{DestroyCI, in.Place, in.GI, ci})
	}
	return steps
}

func (s *search) create(c choice) []Step {
	if c.reuse < 0 {
		return []Step{{CreateGI, c.place, -1, -1}, {CreateCI, c.place, -1, -1}}
	}
	if in := s.Have[c.reuse]; !in.Ready {
		return []Step{{CreateCI, c.place, in.GI, -1}}
	}
	return nil
}
