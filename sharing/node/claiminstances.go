// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
	"github.com/kerf-gpu/kerf/sharing/node/mode"
	"github.com/kerf-gpu/kerf/sharing/node/place"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// ClaimInstances creates MIG instances for ResourceClaims before their pods are bound. Their grants come later, with
// what kubelet admits.
type ClaimInstances struct{ Runtime *Runtime }

// Create creates a MIG instance for an allocation of a claim, and holds it until Release of the allocation's key. The
// GPU switches to MIG mode if demand may do so. It may be called again. A claim with a grant of the instance has it
// already. Errors: *allocator.NoFit, sharing.ErrUnavailable while the node gives nothing to pods, or the driver's.
func (c ClaimInstances) Create(ctx context.Context, hold instances.Hold, in sharing.InstanceRef) error {
	r := c.Runtime
	if err := r.PodsReady(); err != nil {
		return err
	}
	req, err := r.settings.Config().Resolve(r.settings.Pool(), sharing.Request{Kind: sharing.KindMIG, GPUs: 1,
		MIG: in.Profile, UUIDs: []sharing.GPUID{hold.GPU}})
	if err != nil {
		return fmt.Errorf("%s: %w", hold.Who, err)
	}
	need := func() mode.Need {
		return mode.Need{Who: hold.Who, Since: time.Now(), Requests: []sharing.Request{req},
			Prefer: []sharing.GPUID{hold.GPU}}
	}
	advice := sharing.Advice{Exact: true, GPUs: []sharing.GPUID{hold.GPU}, MIG: in}
	granted := false
	if err := r.Modes.Await(ctx, need, func() (err error) {
		hold.Instance, granted, err = c.hold(hold, req, advice)
		return err
	}); err != nil || granted {
		return err //nolint:wrapcheck // it names the GPU and the reason
	}
	return c.ensure(ctx, hold)
}

// hold chooses the instance, and holds it. granted is true if the claim has a grant of it.
func (c ClaimInstances) hold(hold instances.Hold, req sharing.Request, advice sharing.Advice) (in sharing.Instance,
	granted bool, err error) {
	r := c.Runtime
	r.Store.Read(func(l store.Reader) {
		if granted = hasInstance(l.Grants(), hold.ClaimUID, hold.GPU, advice.MIG); granted {
			return
		}
		var p sharing.Placement
		if p, err = place.Instance(r.placing(l), hold.ClaimUID, req, advice); err == nil {
			in = p[0].MIG
			hold.Instance = in
			r.Instances.Holds.Add(hold)
		}
	})
	return in, granted, err
}

// hasInstance reports whether a claim has a grant of a MIG instance.
func hasInstance(grants []ledger.Grant, claimUID string, gpu sharing.GPUID, in sharing.InstanceRef) bool {
	return slices.ContainsFunc(grants, func(g ledger.Grant) bool {
		return instances.In(g.Placement) && g.Placement[0].GPU.UUID == gpu && g.Placement[0].Instance() == in &&
			slices.ContainsFunc(g.Requests, func(a sharing.ResourceRequest) bool { return a.ClaimUID() == claimUID })
	})
}

// ensure has the MIG manager create the instance that is held.
func (c ClaimInstances) ensure(ctx context.Context, hold instances.Hold) error {
	r := c.Runtime
	m := r.Instances.Manager()
	if m == nil {
		return fmt.Errorf("%s: MIG instances cannot be created now: %w", hold.Who, sharing.ErrUnavailable)
	}
	start := time.Now()
	_, warm, err := m.Ensure(ctx, hold.GPU, hold.Instance, hold.Who)
	r.opt.Observer.MIGCreated(warm, time.Since(start), err)
	if err != nil {
		return fmt.Errorf("%s: %w", hold.Who, err)
	}
	r.changed.announce()
	return nil
}

// Release lets the instances of an allocation become idle, unless a grant has them. Its key is that of the holds.
func (c ClaimInstances) Release(key string) {
	r := c.Runtime
	r.Instances.Holds.Remove(key)
	if m := r.Instances.Manager(); m != nil {
		m.Wake()
	}
}
