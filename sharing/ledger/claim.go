// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
)

// Claim books c, whole or not at all. It checks by itself that every fragment is what the request gives on
// that GPU, and that the GPU has room for it: whoever chose may have looked earlier.
//
// Errors: ErrInvalid for a claim that is wrong in itself, ErrConflict for a taken id or name or a container
// that has a claim, ErrNotFound for an unknown GPU, ErrLost, ErrUnavailable or ErrUnsupported for one that is
// lost, not healthy, cordoned or in MIG mode, ErrStale for one whose size has changed since, ErrExhausted for one
// without room. For one that shares a cap: ErrNotFound where that claim is
// unknown, and ErrInvalid where it is not of the same pod and GPUs, or shares another's.
func (l *Ledger) Claim(c Claim) error {
	if err := l.checkIdentity(c); err != nil {
		return fmt.Errorf("claim %q: %w", c.ID, err)
	}
	if err := l.checkPlacement(c); err != nil {
		return fmt.Errorf("claim %q: %w", c.ID, err)
	}
	if err := l.checkWith(c); err != nil {
		return fmt.Errorf("claim %q: %w", c.ID, err)
	}
	for _, f := range c.Placement {
		if err := l.checkRoom(f); err != nil {
			return fmt.Errorf("claim %q: gpu %q: %w", c.ID, f.GPU, err)
		}
	}
	return l.enter(c, nil)
}

// Release drops a claim that is not leased. The error wraps ErrNotFound for an unknown claim and ErrConflict
// while it is leased, or a claim is that shares its cap: that may use what is booked for this one.
func (l *Ledger) Release(id ClaimID) error {
	e, ok := l.claims[id]
	switch {
	case !ok:
		return fmt.Errorf("release claim %q: %w", id, sharing.ErrNotFound)
	case e.lease != nil:
		return fmt.Errorf("release claim %q: leased to cgroup %q: %w", id, e.lease.Cgroup, sharing.ErrConflict)
	}
	if other, used := l.inUse(e); used {
		return fmt.Errorf("release claim %q: claim %q shares its cap, and is leased: %w", id, other, sharing.ErrConflict)
	}
	l.drop(e)
	return nil
}

func (l *Ledger) checkIdentity(c Claim) error {
	if c.ID == "" {
		return fmt.Errorf("no id: %w", sharing.ErrInvalid)
	}
	if _, taken := l.claims[c.ID]; taken {
		return fmt.Errorf("id is taken: %w", sharing.ErrConflict)
	}
	if c.Name != "" {
		if err := sharing.ValidateName("name", c.Name); err != nil {
			return err
		}
		if _, taken := l.names[c.Name]; taken {
			return fmt.Errorf("name %q is taken by a living grant: %w", c.Name, sharing.ErrConflict)
		}
	}
	if (c.Owner.PodUID == "") != (c.Owner.Container == "") {
		return fmt.Errorf("owner has a pod without a container, or the reverse: %w", sharing.ErrInvalid)
	}
	if held, ok := l.ByContainer(c.Owner.PodUID, c.Owner.Container); ok {
		return fmt.Errorf("container %q of pod %q holds claim %q: %w", c.Owner.Container, c.Owner.PodUID, held.Claim.ID, sharing.ErrConflict)
	}
	return nil
}

// checkPlacement checks that the placement answers the request, on GPUs that take claims.
func (l *Ledger) checkPlacement(c Claim) error {
	if err := c.Request.Validate(); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if c.Request.Open() {
		return fmt.Errorf("request: profile %q has not filled it: %w", c.Request.Profile, sharing.ErrInvalid)
	}
	if len(c.Placement) != c.Request.GPUs {
		return fmt.Errorf("%d fragments for %d gpus: %w", len(c.Placement), c.Request.GPUs, sharing.ErrInvalid)
	}
	if err := distinct(c.Placement); err != nil {
		return err
	}
	for _, f := range c.Placement {
		if err := l.checkGPU(c.Request, f); err != nil {
			return fmt.Errorf("gpu %q: %w", f.GPU, err)
		}
	}
	return nil
}

func (l *Ledger) checkGPU(r sharing.Request, f sharing.Fragment) error {
	page, ok := l.gpus[f.GPU]
	if !ok {
		return sharing.ErrNotFound
	}
	if err := page.refused(allocator.Open(page.facts)); err != nil {
		return err
	}
	if why := r.WhyNotPart(f.GPU); why != "" {
		return fmt.Errorf("%s: %w", why, sharing.ErrUnsupported)
	}
	if r.Kind == sharing.KindMIG {
		return checkInstance(page.facts, f)
	}
	if page.facts.MIG {
		return fmt.Errorf("in MIG mode: %w", sharing.ErrUnsupported)
	}
	want := r.On(page.facts)
	f.Burst, want.Burst = 0, 0 // no guarantee: what it may be lent, Lend decides
	switch {
	case f == want && f.Memory > 0:
		return nil
	case f.Whole == want.Whole && f.Percent == want.Percent && r.Memory == 0 && f.Memory > 0:
		return fmt.Errorf("%s was chosen, and the gpu now gives %s: %w", f.Memory, want.Memory, sharing.ErrStale)
	}
	return fmt.Errorf("the fragment is not what the request gives: %w", sharing.ErrInvalid)
}

// checkInstance checks a fragment that is a MIG instance. That the GPU has such a one is for who chose it to know.
func checkInstance(g sharing.GPU, f sharing.Fragment) error {
	in := f.MIG
	switch {
	case !g.MIG:
		return fmt.Errorf("not in MIG mode: %w", sharing.ErrUnsupported)
	case in.None() || in.Profile == "" || in.Start < 0 || in.Start+in.Size > maxUnits || f.Memory == 0 || f.Percent != 0 || f.Burst != 0 || f.Whole:
		return fmt.Errorf("the fragment is no MIG instance: %w", sharing.ErrInvalid)
	}
	return nil
}

// alive returns nil for a healthy GPU. Who has a claim may use a GPU that is cordoned.
func (g *gpu) alive() error {
	facts := g.facts
	facts.Cordoned = ""
	return g.refused(allocator.Open(facts))
}

// refused is the verdict as an error; nil if the GPU fits.
func (g *gpu) refused(v allocator.Verdict) error {
	is := sharing.ErrExhausted
	switch {
	case v.Fits():
		return nil
	case v.Code == allocator.NotHealthy && g.facts.Health == sharing.HealthLost:
		is = sharing.ErrLost
	case v.Code == allocator.NotHealthy, v.Code == allocator.Cordoned:
		is = sharing.ErrUnavailable
	}
	return fmt.Errorf("%s: %w", v.Text, is)
}

// checkRoom checks that f fits beside all that is booked.
func (l *Ledger) checkRoom(f sharing.Fragment) error {
	page := l.gpus[f.GPU]
	if err := l.checkParts(page, f); err != nil {
		return err
	}
	return page.room(page.held, f)
}

// room checks that f fits beside what is there.
func (g *gpu) room(there sum, f sharing.Fragment) error {
	after, err := there.with(f)
	switch {
	case err != nil:
		return err
	case !f.MIG.None() && there.instances < there.claims:
		return fmt.Errorf("shared, or held whole, and a MIG instance asked: %w", sharing.ErrExhausted)
	case (!f.MIG.None() || there.instances > 0) && !after.fits(g.facts):
		return fmt.Errorf("%s is where another claim's instance is: %w", f.MIG, sharing.ErrExhausted)
	case !f.MIG.None():
		return nil
	case !there.fits(g.facts):
		return fmt.Errorf("more is taken (%s, %s) than there is (%s): %w", there.memory, there.percent, g.facts.Bookable(), sharing.ErrExhausted)
	}
	if err := g.refused(allocator.Room(g.state(there), f)); err != nil || after.fits(g.facts) {
		return err
	}
	return fmt.Errorf("held whole: %w", sharing.ErrExhausted)
}

// state is what the GPU has free beside what is there, which fits it.
func (g *gpu) state(there sum) allocator.GPUState {
	s := allocator.GPUState{GPU: g.facts, Lent: g.lent, Held: there.claims > 0}
	if there.whole == 0 {
		s.FreeMemory, s.FreePercent = g.free(there), g.facts.BookablePercent()-there.percent
	}
	return s
}

// distinct refuses a placement with two fragments on one GPU.
func distinct(p sharing.Placement) error {
	seen := make(map[sharing.GPUID]bool, len(p))
	for _, f := range p {
		if seen[f.GPU] {
			return fmt.Errorf("two fragments on gpu %q: %w", f.GPU, sharing.ErrInvalid)
		}
		seen[f.GPU] = true
	}
	return nil
}
