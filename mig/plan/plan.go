// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan decides how a GPU's MIG instances change. From the existing, busy and desired instances it finds the
// shortest list of steps that is safe. For each request that is impossible now, it says what that waits for.
//
// Promises: a plan destroys only instances that are Kerf's own and idle. After each of its steps the GPU has a legal
// set of instances. So the next plan can go on after a crash between two steps. The plan for a GPU with the desired
// instances is empty. The first request is served first. Among the plans with the fewest steps it leaves the most
// valuable free space, so that large profiles stay possible. The same input gives the same plan.
//
// The package does not call a driver, has no clock and keeps no state. The caller of a plan reads the GPU again, and
// makes a new plan after each change of GPU or wishes.
package plan

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// MaxWishes is the largest number of wishes in one Request: no GPU has room for more. With it, the instances in the way
// of the last wish fit a word of bits.
const MaxWishes = 12

// Instance is one GPU instance that the driver reports.
type Instance struct {
	Place mig.Place
	// GI is the driver's id for it, and CIs are those of its compute instances.
	GI  int
	CIs []int
	// Ready is true when there is exactly one compute instance, and it is over all of the GPU instance.
	Ready bool
	// Managed is true when Kerf made it. All others are left as they are, idle or not.
	Managed bool
	// Users are all who use it, as people know them: pods, grants, processes. None means that it is idle.
	Users []string
}

// Any as a Wish's Start means any place of the profile.
const Any = mig.AnyStart

// Wish is an instance that is wanted.
type Wish struct {
	Profile int // id
	Start   int // placement unit, or Any
	// For says who wants it, to tell those who come after whom they wait for.
	For string
}

// Request is what a plan is made from.
type Request struct {
	Table *mig.Table
	// Values says which room is worth keeping; nil means that all rooms are alike.
	Values *mig.Values
	Have   []Instance
	// Wishes are in the order in which they are served.
	Wishes []Wish
	// Exact makes the wishes a layout: all that the GPU should have. Instances in use count for it, and idle managed
	// ones outside it go. Otherwise each wish is for one idle instance, and instances that block nothing stay.
	Exact bool
}

// State says what becomes of a wish.
type State uint8

// The states of a wish.
const (
	// Never: the GPU has no such profile or no such place, or the layout has no room for it.
	Never State = iota
	// Ready: the instance is there.
	Ready
	// Made: the plan's steps make it, or make it ready.
	Made
	// Pending: it can be made when the holders that the answer names have ended.
	Pending
	// Unmanaged: instances that are not ours are in every place.
	Unmanaged
)

// String returns the state as status and logs show it.
func (s State) String() string {
	switch s {
	case Ready:
		return "ready"
	case Made:
		return "made"
	case Pending:
		return "waits"
	case Unmanaged:
		return "foreign"
	case Never:
	}
	return "never"
}

// Answer is what becomes of one wish.
type Answer struct {
	State State
	// Place is where the instance is or will be; only with Ready, Made and Pending.
	Place mig.Place
	// BlockedBy are the holders that must end first, only with Pending.
	BlockedBy []string
	// Fragmented is true if the free space would suffice in one block: the instances in the way could be placed so
	// that this one fits. Otherwise the GPU is full for it. Only with Pending and Unmanaged.
	Fragmented bool
	// Reason says in words, with the numbers, why it is neither Ready nor Made.
	Reason string
}

// Op is what a step does.
type Op uint8

// The steps' operations, in the order in which they occur in a plan.
const (
	DestroyCI Op = iota
	DestroyGI
	CreateGI
	CreateCI
)

// String returns the operation as logs and the journal show it.
func (o Op) String() string {
	switch o {
	case DestroyCI:
		return "destroy-ci"
	case DestroyGI:
		return "destroy-gi"
	case CreateGI:
		return "create-gi"
	case CreateCI:
		return "create-ci"
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

// Step is one call to the driver.
type Step struct {
	Op    Op
	Place mig.Place
	// GI is the driver's id of the instance that is destroyed or gets its compute instance; -1 where it is made by
	// this plan. CI is that of a compute instance to destroy, else -1.
	GI, CI int
}

// Left is an instance of ours that a layout has no place for and that is in use: it goes when its holders end.
type Left struct {
	Place     mig.Place
	BlockedBy []string
}

// Plan is the answer to an Request.
type Plan struct {
	// Steps are to be done in this order.
	Steps []Step
	// Answers are in the order of the wishes.
	Answers []Answer
	// Left are in the order of the instances; only for a layout.
	Left []Left
}

// Make plans. An error wraps sharing.ErrInvalid: there are too many requests, or no such GPU can have the layout (the
// error shows the arithmetic). It may also be a driver's report that is impossible for this GPU. Then nothing may be
// done to it.
func Make(ask Request) (Plan, error) {
	if len(ask.Wishes) > MaxWishes {
		return Plan{}, fmt.Errorf("%d MIG instances are wanted of one GPU, more than %d: %w", len(ask.Wishes),
			MaxWishes, sharing.ErrInvalid)
	}
	if ask.Exact {
		if err := Possible(ask.Table, ask.Wishes); err != nil {
			return Plan{}, err
		}
	}
	s, err := newSearch(ask)
	if err != nil {
		return Plan{}, err
	}
	s.best(0, s.fixed, 0, 0)
	return s.plan(), nil
}

// Possible says whether an empty GPU has room for all the wishes together. The error wraps sharing.ErrInvalid and
// shows the arithmetic.
func Possible(t *mig.Table, wishes []Wish) error {
	if len(wishes) > MaxWishes {
		return fmt.Errorf("%d MIG instances are wanted of one GPU, more than %d: %w", len(wishes), MaxWishes,
			sharing.ErrInvalid)
	}
	ids := make([]int, len(wishes))
	demanded := false
	for i, w := range wishes {
		ids[i] = w.Profile
		demanded = demanded || w.Start != Any
	}
	if _, err := t.Arrange(ids); err != nil || !demanded {
		return err
	}
	s, err := newSearch(Request{Table: t, Wishes: wishes})
	if err != nil {
		return err
	}
	if o := s.best(0, s.fixed, 0, 0); o.unserved != 0 {
		name := t.Name(ids[bits.LeadingZeros32(o.unserved)])
		return fmt.Errorf("the starts that are given leave no place for %s: %w", name, sharing.ErrInvalid)
	}
	return nil
}

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
			p.Left = append(p.Left, Left{s.Have[i].Place, slices.Clone(s.Have[i].Users)})
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
