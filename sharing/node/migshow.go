// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// MIGShown is an instance that a container has, or is about to.
type MIGShown struct {
	Device sharing.MIGDevice
	GPU    sharing.GPU
	// Capabilities are the GPU instance's, then the compute instance's.
	Capabilities []Capability
}

// ShowMIG registers f to be told of all instances of containers: before one is made that has one, and again when they
// are other ones. Without it no container gets an instance. It is called before Run.
func (r *Runtime) ShowMIG(f func(ctx context.Context, devices []MIGShown) error) { r.showMIG = f }

// showWith tells of the claim's device, beside all others that containers have. A process of its own needs nobody to be
// told.
func (r *Runtime) showWith(ctx context.Context, id ledger.ClaimID, d sharing.MIGDevice) error {
	r.showing.Lock()
	defer r.showing.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	g, _ := r.ledger.Get(id)
	h := r.held[id]
	if forContainer(g, h) {
		list := append(r.devicesBut(id), d)
		r.mu.Unlock()
		err := r.show(ctx, list, d)
		r.mu.Lock()
		if err != nil {
			return err
		}
	}
	if h = r.held[id]; h != nil {
		h.device = d
	}
	return nil
}

// hideMIG takes back what was told of instances that no container has any more.
func (r *Runtime) hideMIG(ctx context.Context) {
	r.showing.Lock()
	defer r.showing.Unlock()
	r.mu.Lock()
	list := r.devicesBut("")
	ready := r.restored && r.att != nil && r.showMIG != nil
	r.mu.Unlock()
	if !ready {
		return
	}
	if err := r.show(ctx, list, sharing.MIGDevice{}); err != nil && ctx.Err() == nil {
		r.log.Warn("mig instances not taken back from the container runtime", "error", err.Error())
	}
}

// devicesBut are the devices of all containers but of this claim's; it needs the lock.
func (r *Runtime) devicesBut(id ledger.ClaimID) []sharing.MIGDevice {
	var out []sharing.MIGDevice
	for _, g := range r.ledger.Grants() {
		if h := r.held[g.Claim.ID]; g.Claim.ID != id && forContainer(g, h) && h.device.UUID != "" {
			out = append(out, h.device)
		}
	}
	return out
}

// show needs r.showing. Of the devices only the one that must be there may fail it: another may have gone by hand. The numbers
// of their capabilities are read each time, and told again when they are other ones.
func (r *Runtime) show(ctx context.Context, list []sharing.MIGDevice, must sharing.MIGDevice) error {
	if r.showMIG == nil {
		return fmt.Errorf("this agent serves no containers: %w", sharing.ErrUnsupported)
	}
	slices.SortFunc(list, func(a, b sharing.MIGDevice) int { return cmp.Compare(a.UUID, b.UUID) })
	list = slices.Compact(list) // one that is shared has several claims
	out := make([]MIGShown, 0, len(list))
	for _, d := range list {
		r.mu.Lock()
		v, _ := r.ledger.GPU(d.GPU)
		r.mu.Unlock()
		caps, err := r.capabilities(v.GPU, d)
		switch {
		case err == nil:
			out = append(out, MIGShown{Device: d, GPU: v.GPU, Capabilities: caps})
		case d == must:
			return err
		default:
			r.log.Debug("mig instance without capabilities", "uuid", d.UUID, "error", err.Error())
		}
	}
	if r.wasShown && slices.EqualFunc(out, r.shown, MIGShown.same) {
		return nil
	}
	r.wasShown = false
	if err := r.showMIG(ctx, out); err != nil {
		return err
	}
	r.shown, r.wasShown = out, true
	return nil
}

// same reports whether containers get the same of both.
func (m MIGShown) same(o MIGShown) bool {
	return m.Device == o.Device && m.GPU.Minor == o.GPU.Minor && slices.Equal(m.Capabilities, o.Capabilities)
}
