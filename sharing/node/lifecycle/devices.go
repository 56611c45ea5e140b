// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/health"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// TerminatingReason of a pod: the node is about to terminate.
const TerminatingReason = "NodeTerminating"

// SetHealth tells a GPU's health. Grants on it stay; new ones go elsewhere.
func (r *Devices) SetHealth(gpu sharing.GPUID, h sharing.Health, reason string) {
	_ = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		r.observe(l, sharing.GPURef{UUID: gpu}, health.State{Health: h, Reason: reason})
		return nil
	})
	r.Notify.Audit.Health(sharing.GPURef{UUID: gpu}, h, reason)
	if h == sharing.HealthOK {
		r.VerifySoon()
	}
	r.Announce()
}

// observe takes the health of a GPU and of its shared MIG instances.
func (r *Devices) observe(l *ledger.Ledger, gpu sharing.GPURef, s health.State) {
	ids := []sharing.GPURef{gpu}
	for _, v := range l.GPUs() {
		if part := v.GPU.Ref(); part.IsInstance() && part.Device() == gpu {
			ids = append(ids, part)
		}
	}
	r.Health.Observe(s, ids...)
	r.applyHealth(l)
}

// applyHealth puts the health of all GPUs into the ledger. A GPU that left the inventory meanwhile is no error.
func (r *Devices) applyHealth(l *ledger.Ledger) {
	for gpu, s := range r.Health.All() {
		if err := l.SetHealth(gpu, s.Health, s.Reason); err != nil && !errors.Is(err, sharing.ErrNotFound) {
			r.Log.Error("failed to set health of GPU", "gpu", gpu.String(), "error", err.Error())
		}
	}
}

// SetInstanceHealth tells the health of one of Kerf's MIG instances. Nothing new is given of an instance that is not
// healthy.
func (r *Devices) SetInstanceHealth(gpu sharing.GPUID, in sharing.Instance, h sharing.Health, reason string) {
	id, sentence := in.On(gpu), ""
	if h != sharing.HealthOK {
		sentence = "MIG instance " + id.String() + " is " + h.String() + ": " + reason
	}
	_ = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		r.Health.SetInstance(gpu, in, health.State{Health: h, Reason: reason})
		r.applyHealth(l)
		r.Conditions.SetOf(conditions.Instance, id.String(), sentence)
		return nil
	})
	r.Notify.Audit.Health(id, h, reason)
	r.Announce()
}

// SetErrors sets which GPUs must not be used although the health check finds them healthy, and why. Their MIG
// instances differ from the desired ones, and the reconciler could not correct them.
func (r *Devices) SetErrors(why map[sharing.GPUID]string) {
	changed := false
	_ = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		changed = r.Health.SetUnusable(why)
		r.applyHealth(l)
		return nil
	})
	if changed {
		r.Announce()
	}
}

// SetLeaving sets why the node will be removed; empty if it stays. The node then grants nothing more, and each pod
// with a GPU gets an event.
func (r *Devices) SetLeaving(ctx context.Context, why string) {
	var grants []ledger.Grant
	r.Store.Read(func(l store.Reader) { // no grant is reserved between
		if r.Conditions.Set(conditions.Leaving, why) && why != "" {
			grants = l.Grants()
		}
	})
	for _, g := range grants {
		r.Notify.Pod(ctx, g, TerminatingReason, why)
	}
}

// Attach takes a driver that answers into use, or replaces the one in use. Caps of running attachments are
// verified against it before anything is granted.
func (r *Devices) Attach(ctx context.Context, att gpudriver.Attached) error {
	var orphans []cgroup.Group
	err := r.Store.UpdateLater(func(l *ledger.Ledger) error {
		if err := l.SetInventory(r.Allocatable(att.GPUs)); err != nil {
			return fmt.Errorf("take in inventory: %w", err)
		}
		for _, g := range att.GPUs {
			r.observe(l, g.Ref(), health.State{Health: g.Health, Reason: g.HealthReason})
		}
		r.Driver.Set(&att)
		r.Lists.Found(att.GPUs)
		r.Took(att.GPUs, att.Levels)
		r.Conditions.Set(conditions.Driver, "the caps of running grants are being verified")
		r.Conditions.Set(conditions.NoGPU, "")
		orphans = r.Recovery.TakeOrphans()
		return nil
	})
	if err != nil {
		return err
	}
	for _, s := range att.LeftOut {
		r.Log.Warn("ignored device in the inventory", "reason", s)
	}
	r.Conditions.Set(conditions.LeftOut, JoinSentences(att.LeftOut))

	r.finder.Recover(ctx, orphans)
	r.caps.VerifyAll(ctx)

	r.Store.Read(func(store.Reader) {
		r.Driver.Settled()
		r.Conditions.Set(conditions.Driver, "")
		if len(att.GPUs) == 0 {
			r.Conditions.Set(conditions.NoGPU, "the driver shows no GPU")
		}
	})
	r.Announce()
	return ctx.Err()
}

// Detach tells that no driver answers any more, and why. Grants stay; nothing new is granted.
func (r *Devices) Detach(reason string) {
	_ = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		if !r.Conditions.Set(conditions.Driver, reason) && r.Driver.Get() == nil {
			return nil
		}
		r.Driver.Set(nil)
		r.Conditions.Set(conditions.NoGPU, "")
		for _, v := range l.GPUs() {
			r.observe(l, v.GPU.Ref(), health.State{Health: sharing.HealthUnknown, Reason: reason})
		}
		r.Announce()
		return nil
	})
}

// SetCordons replaces the cordoned GPUs, with reasons. Grants on them stay, and their containers can restart.
func (r *Devices) SetCordons(why map[sharing.GPUID]string) {
	_ = r.Store.UpdateLater(func(l *ledger.Ledger) error { l.SetCordons(why); return nil })
	r.Announce()
}

// Amend changes what is known of the driver in use: its GPUs, and what each can give. Grants stay as they are.
func (r *Devices) Amend(change func(*gpudriver.Attached)) {
	_ = r.Store.UpdateLater(func(l *ledger.Ledger) error {
		if r.Driver.Amend(change) {
			r.TakeInventory(l)
		}
		return nil
	})
	r.VerifySoon()
	r.Announce()
}

// Inventory is the node's GPUs as the driver last reported them, with removed ones that still have grants. It makes
// no call, and is empty before the first driver.
func (r *Devices) Inventory() []sharing.GPU {
	var out []sharing.GPU
	_, gpus := r.Store.View()
	for _, v := range gpus {
		out = append(out, v.GPU)
	}
	return out
}

// DriverSeen reports whether a driver has answered since this runtime was made: before that, the inventory
// is not the node's.
func (r *Devices) DriverSeen() bool { return r.Driver.Seen() }

// DriverLost reports whether a driver has answered since this runtime was made, and none does now.
func (r *Devices) DriverLost() bool { return r.Driver.Seen() && r.Driver.Get() == nil }

// TakeInventory takes in the GPUs of the driver in use again, with the amounts that the settings allow.
func (r *Devices) TakeInventory(l *ledger.Ledger) {
	gpus := r.Driver.Get().GPUs
	if err := l.SetInventory(r.Allocatable(gpus)); err != nil {
		r.Log.Error("failed to change the inventory", "error", err.Error())
	}
	for _, g := range gpus {
		r.Health.Add(g.Ref())
	}
	r.Lists.Found(gpus)
	r.applyHealth(l)
}
