// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
)

// checkPlacement checks that the placement answers the request, on GPUs that take grants.
func (p *pages) checkPlacement(c Reservation) error {
	if err := c.Request.Validate(); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if c.Request.Open() {
		return fmt.Errorf("request: profile %q has not filled it: %w", c.Request.Profile, sharing.ErrInvalid)
	}
	if len(c.Placement) != c.Request.GPUs {
		return fmt.Errorf("%d shares for %d gpus: %w", len(c.Placement), c.Request.GPUs, sharing.ErrInvalid)
	}
	if err := distinct(c.Placement); err != nil {
		return err
	}
	for _, f := range c.Placement {
		if err := p.checkGPU(c.Request, f); err != nil {
			return fmt.Errorf("gpu %q: %w", f.GPU, err)
		}
	}
	return nil
}

func (p *pages) checkGPU(r sharing.Request, f sharing.Share) error {
	page, ok := p.gpus[f.GPU]
	if !ok {
		return sharing.ErrNotFound
	}
	if err := page.refused(allocator.Open(page.facts)); err != nil {
		return err
	}
	if why := r.InstanceMismatch(f.GPU); why != "" {
		return fmt.Errorf("%s: %w", why, sharing.ErrUnsupported)
	}
	if r.Kind == sharing.KindMIG {
		return checkInstance(page.facts, f)
	}
	if page.facts.MIG {
		return fmt.Errorf("in MIG mode: %w", sharing.ErrUnsupported)
	}
	want := r.On(page.facts)
	f.Burst, want.Burst = 0, 0 // no guarantee: Lend decides on burst memory
	switch {
	case f == want && (f.Memory > 0 || f.Whole && page.facts.SystemMemory):
		return nil
	case f.Whole == want.Whole && f.Percent == want.Percent && r.Memory == 0 && f.Memory > 0:
		return fmt.Errorf("%s was chosen, and the gpu now gives %s: %w", f.Memory, want.Memory, sharing.ErrStale)
	}
	return fmt.Errorf("the share does not match the request: %w", sharing.ErrInvalid)
}

// checkInstance checks a share that is a MIG instance. The allocator knows whether the GPU has such an instance.
func checkInstance(g sharing.GPU, f sharing.Share) error {
	in := f.MIG
	switch {
	case !g.MIG:
		return fmt.Errorf("not in MIG mode: %w", sharing.ErrUnsupported)
	case in.None() || in.Profile == "" || in.Start < 0 || in.Start+in.Size > maxUnits || f.Memory == 0 ||
		f.Percent != 0 || f.Burst != 0 || f.Whole:
		return fmt.Errorf("the share is no MIG instance: %w", sharing.ErrInvalid)
	}
	return nil
}

// checkRoom checks that f fits in the free capacity.
func (p *pages) checkRoom(f sharing.Share) error {
	page := p.gpus[f.GPU]
	if err := p.checkParts(page, f); err != nil {
		return err
	}
	return page.room(page.held, f)
}

// alive returns nil for a healthy GPU. Who has a grant may use a GPU that is cordoned.
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

// room checks that f fits in the free capacity.
func (g *gpu) room(there sum, f sharing.Share) error {
	after, err := there.with(f)
	switch {
	case err != nil:
		return err
	case !f.MIG.None() && there.instances < there.grants:
		return fmt.Errorf("shared, or held whole, and a MIG instance requested: %w", sharing.ErrExhausted)
	case (!f.MIG.None() || there.instances > 0) && !after.fits(g.facts):
		return fmt.Errorf("%s is where another grant's instance is: %w", f.MIG, sharing.ErrExhausted)
	case !f.MIG.None():
		return nil
	case !there.fits(g.facts):
		return fmt.Errorf("more is taken (%s, %s) than there is (%s): %w", there.memory, there.percent,
			g.facts.Bookable(), sharing.ErrExhausted)
	}
	if err := g.refused(allocator.CheckCapacity(g.state(there), f)); err != nil || after.fits(g.facts) {
		return err
	}
	return fmt.Errorf("held whole: %w", sharing.ErrExhausted)
}

// state is the free capacity of the GPU.
func (g *gpu) state(there sum) allocator.GPUState {
	s := allocator.GPUState{GPU: g.facts, Burst: g.burst, InUse: there.grants > 0}
	if there.whole == 0 {
		s.FreeMemory, s.FreePercent = g.free(there), g.facts.BookablePercent()-there.percent
	}
	return s
}

// distinct rejects a placement with two shares on one GPU.
func distinct(p sharing.Placement) error {
	seen := make(map[sharing.GPURef]bool, len(p))
	for _, f := range p {
		if seen[f.GPU] {
			return fmt.Errorf("two shares on gpu %q: %w", f.GPU, sharing.ErrInvalid)
		}
		seen[f.GPU] = true
	}
	return nil
}

// checkParts rejects a share that conflicts with another grant: shares of an instance that is granted whole, and the
// reverse. It also rejects a GPU itself while shares of its instances are granted.
func (p *pages) checkParts(page *gpu, f sharing.Share) error {
	if f.GPU.IsInstance() {
		whole := p.gpus[f.GPU.Device()]
		if whole != nil && (whole.held.grants > whole.held.instances || whole.held.covers(page.facts.Part)) {
			return fmt.Errorf("another grant has the whole instance: %w", sharing.ErrExhausted)
		}
		return nil
	}
	for id, part := range p.gpus {
		if id.Device() != f.GPU || !id.IsInstance() || part.held.grants == 0 {
			continue
		}
		if in := part.facts.Part; f.MIG.None() || in.None() || in.Overlaps(f.MIG) {
			return fmt.Errorf("%d grants share the MIG instance %s: %w", part.held.grants, id, sharing.ErrExhausted)
		}
	}
	return nil
}

// covers reports whether an instance is on any of the units.
func (s sum) covers(in sharing.Instance) bool {
	for u := max(0, in.Start); u < min(in.Start+in.Size, maxUnits); u++ {
		if s.units[u] > 0 {
			return true
		}
	}
	return false
}
