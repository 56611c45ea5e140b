// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// input is one event (xid != 0) or one sample.
type input struct {
	xid     uint64
	unnamed bool
	look    Sample
}

// naive decides from the whole history each time. It keeps only the last health, and reads the history for everything
// else.
type naive struct {
	history []input
	// alone is what each input made of the GPU by itself, when it came.
	alone []sharing.Health
	// left is where in the history the present bad time began, -1 while it is well, and since the begin of what counts.
	left, since int
	known       bool
	turns, calm int
}

func (n *naive) take(in input) sharing.Health {
	n.history = append(n.history, in)
	at := len(n.history) - 1
	n.alone = append(n.alone, n.worst(at))
	well := n.known && n.left < 0
	if !n.clean(at) {
		n.calm = 0
		if n.alone[at] != sharing.HealthOK && n.left < 0 {
			if n.left = at; well {
				n.turns++
			}
			n.known = true
		}
		return n.health(at)
	}
	if well {
		if n.calm++; n.calm == calmProbes {
			n.calm, n.turns = 0, max(0, n.turns-1)
		}
		return sharing.HealthOK
	}
	run := 0
	for i := at; i >= n.since && n.clean(i); i-- {
		run++
	}
	if !n.known || run >= n.need(at) {
		n.known, n.left, n.since = true, -1, at+1
		return sharing.HealthOK
	}
	return n.health(at)
}

func (n *naive) health(at int) sharing.Health {
	if !n.known {
		return sharing.HealthUnknown
	}
	if n.left < 0 {
		return sharing.HealthOK
	}
	worst := sharing.HealthOK
	for i := n.left; i <= at; i++ {
		worst = max(worst, n.alone[i])
	}
	return worst
}

// last is what a flag said last, up to at.
func (n *naive) last(at int, of func(Sensors) Flag) Flag {
	for i := at; i >= 0; i-- {
		if f := of(n.history[i].look.Sensors); n.answered(i) && f != FlagUnknown {
			return f
		}
	}
	return No
}

func (n *naive) answered(i int) bool { return n.history[i].xid == 0 && n.history[i].look.Err == nil }

// row is how often a flag was set since it was last reported clear.
func (n *naive) row(at int, of func(Sensors) Flag) (count int) {
	for i := at; i >= 0; i-- {
		if !n.answered(i) {
			continue
		}
		switch of(n.history[i].look.Sensors) {
		case No:
			return count
		case Yes:
			count++
		case FlagUnknown:
		}
	}
	return count
}

// worst is what one input by itself makes of the GPU.
func (n *naive) worst(at int) sharing.Health {
	in := n.history[at]
	if in.xid != 0 {
		switch class := Classify(in.xid); {
		case class == Application:
			return sharing.HealthOK
		case in.unnamed || class == Drain:
			return sharing.HealthSuspect
		case class == OffBus:
			return sharing.HealthLost
		}
		return sharing.HealthUnhealthy
	}
	if errors.Is(in.look.Err, sharing.ErrLost) {
		return sharing.HealthLost
	}
	if in.look.Err != nil {
		silent := 0
		for i := at; i >= max(n.left, 0); i-- {
			if errors.Is(n.history[i].look.Err, sharing.ErrLost) {
				break
			}
			if n.history[i].look.Err != nil {
				silent++
			}
		}
		if silent >= muteProbes {
			return sharing.HealthUnhealthy
		}
		return sharing.HealthSuspect
	}
	switch {
	case in.look.Recovery.Action != "", n.last(at, func(s Sensors) Flag { return s.RemapFailed }) == Yes:
		return sharing.HealthUnhealthy
	case n.moreErrors(at), n.fewerLinks(at), n.last(at, func(s Sensors) Flag { return s.RemapPending }) == Yes,
		n.row(at, func(s Sensors) Flag { return s.Overheat }) >= slowProbes,
		n.row(at, func(s Sensors) Flag { return s.PowerBrake }) >= slowProbes:
		return sharing.HealthSuspect
	}
	return sharing.HealthOK
}

func (n *naive) moreErrors(at int) bool {
	now := n.history[at].look.Sensors.Uncorrected
	for i := at - 1; i >= 0 && now.Known; i-- {
		if before := n.history[i].look.Sensors.Uncorrected; n.answered(i) && before.Known {
			return now.N > before.N
		}
	}
	return false
}

func (n *naive) fewerLinks(at int) bool {
	var now *uint64
	most := uint64(0)
	for i := at; i >= 0; i-- {
		if l := n.history[i].look.Sensors.Links; n.answered(i) && l.Known {
			if now == nil {
				now = &l.N
			}
			most = max(most, l.N)
		}
	}
	return now != nil && *now < most
}

// clean reports whether a sample counts towards recovery.
func (n *naive) clean(at int) bool {
	if !n.answered(at) || n.alone[at] != sharing.HealthOK {
		return false
	}
	if n.history[at].look.Recovery.Known || n.left < 0 {
		return true
	}
	return !slices.ContainsFunc(n.history[n.left:at+1], func(in input) bool {
		class := Classify(in.xid)
		return in.xid != 0 && !in.unnamed && (class == Drain || class == Critical)
	})
}

func (n *naive) need(at int) int {
	silent, other := 0, false
	for _, in := range n.history[n.left : at+1] {
		switch {
		case in.xid != 0:
			other = other || Classify(in.xid) != Application
		case errors.Is(in.look.Err, sharing.ErrLost):
			other = true
		case in.look.Err != nil:
			silent++
		}
	}
	for i := n.left; i <= at; i++ {
		other = other || n.answered(i) && n.alone[i] != sharing.HealthOK
	}
	need := cleanProbes
	if silent == 1 && !other {
		need = 1
	}
	for i := freeTurns; i < n.turns && i < freeTurns+mostDoubled; i++ {
		need *= 2
	}
	return need
}

// An application's XID between clean probes is no sign of anything, and ends no run of them.
func TestMachineAgainstNaive(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		var m Machine
		n := &naive{left: -1}
		for i := range 300 {
			in := randomInput(rnd, int(seed%4))
			if in.xid != 0 && Classify(in.xid) == Application {
				if before := m.State(); m.XID(in.xid) || m.Unnamed(in.xid) || m.State() != before {
					t.Fatalf("seed %d, input %d: XID %d changed %v", seed, i, in.xid, before)
				}
				continue
			}
			before := m.State()
			var changed bool
			switch {
			case in.xid != 0 && in.unnamed:
				changed = m.Unnamed(in.xid)
			case in.xid != 0:
				changed = m.XID(in.xid)
				for range rnd.IntN(3) { // a burst is one event
					if m.XID(in.xid) {
						t.Fatalf("seed %d, input %d: XID %d again changed the state", seed, i, in.xid)
					}
				}
			default:
				changed = m.Probe(in.look)
			}
			got, want := m.State(), n.take(in)
			if got.Health != want {
				t.Fatalf("seed %d, input %d %+v: %v (%s), want %v", seed, i, in, got.Health, got, want)
			}
			if changed != (got != before) {
				t.Fatalf("seed %d, input %d: changed is %v, from %v to %v", seed, i, changed, before, got)
			}
			if sick := got.Health > sharing.HealthOK; sick != (got.Reason != "") || sick != (got.Remedy != "") {
				t.Fatalf("seed %d, input %d: %v with reason %q, remedy %q", seed, i, got.Health, got.Reason, got.Remedy)
			}
		}
		// Whatever happened, a GPU that is well and says so comes back.
		well := Sample{Recovery: nothing, Sensors: Sensors{RemapPending: No, RemapFailed: No, Overheat: No,
			PowerBrake: No, Links: Count{true, 18}}}
		for range cleanProbes << mostDoubled {
			m.Probe(well)
		}
		if s := m.State(); s.Health != sharing.HealthOK {
			t.Fatalf("seed %d: it did not come back: %v (%s)", seed, s.Health, s)
		}
	}
}

// randomInput makes mostly clean looks; mood says how much else there is.
func randomInput(rnd *rand.Rand, mood int) input {
	if rnd.IntN(40) < 1+mood {
		xids := []uint64{13, 31, 48, 63, 64, 74, 79, 94, 95, 119, 500}
		return input{xid: xids[rnd.IntN(len(xids))], unnamed: rnd.IntN(5) == 0}
	}
	var in input
	if rnd.IntN(30) < mood {
		in.look.Err = []error{errLost, errHang, errHang}[rnd.IntN(3)]
		return in
	}
	if in.look.Recovery = nothing; rnd.IntN(20) == 0 {
		in.look.Recovery = []Recovery{{}, reset}[rnd.IntN(2)]
	}
	flag := func() Flag { return []Flag{FlagUnknown, No, No, Yes}[rnd.IntN(4)] }
	s := &in.look.Sensors
	switch rnd.IntN(24) {
	case 0:
		s.RemapPending = flag()
	case 1:
		s.RemapFailed = flag()
	case 2:
		s.Uncorrected = Count{true, rnd.Uint64N(4)}
	case 3:
		s.Links = Count{true, 18 - rnd.Uint64N(2)}
	case 4:
		s.Overheat = No
	default:
		s.Overheat, s.PowerBrake = Yes, Flag(rnd.IntN(2)*2)
	}
	return in
}
