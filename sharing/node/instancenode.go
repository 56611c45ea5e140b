// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// AwaitInstances returns once the MIG instances of a pod's grants exist. The reconciler creates them.
func (r *Runtime) AwaitInstances(ctx context.Context, podUID string) error {
	for _, g := range r.Store.Grants() {
		if g.Owner.PodUID != podUID {
			continue
		}
		if err := r.Instances.Await(ctx, g.ID); err != nil {
			return err //nolint:wrapcheck // it names the instance
		}
	}
	return nil
}

// instanceNode is the runtime as an instances.Reconciler needs it.
type instanceNode struct{ r *Runtime }

// View implements instances.Node, as do the others.
func (n instanceNode) View(f func(grants []instances.Grant, ready bool)) {
	n.r.Store.Read(func(l store.Reader) { f(n.grants(l), n.r.Recovery.Get().Restored && n.r.Driver.Get() != nil) })
}

func (n instanceNode) grants(l store.Reader) []instances.Grant {
	var out []instances.Grant
	for _, g := range l.Grants() {
		if one, is := n.of(l, g); is {
			out = append(out, one)
		}
	}
	return out
}

func (n instanceNode) of(l store.Reader, g ledger.Grant) (instances.Grant, bool) {
	if !instances.In(g.Placement) {
		return instances.Grant{}, false
	}
	f := g.Placement[0]
	return instances.Grant{
		Reservation: g.Reservation, GPU: gpuOf(l, f.GPU.Device()), Instance: instances.Of(f, l.GPU),
		Container: g.Standalone || g.Owner.Pod(), Active: g.Active != nil,
	}, true
}

func (n instanceNode) Grant(id ledger.GrantID) (out instances.Grant, is bool) {
	n.r.Store.Read(func(l store.Reader) {
		if g, ok := l.Get(id); ok {
			out, is = n.of(l, g)
		}
	})
	return out, is
}

func (n instanceNode) Changed() <-chan struct{} { return n.r.changed.wait() }

func (n instanceNode) Subscribe(wants func(ledger.Transition) bool) instances.Transitions {
	return n.r.Store.Subscribe(wants)
}

func (n instanceNode) Announce() { n.r.changed.announce() }

func (n instanceNode) Created(g instances.Grant, res instances.Result) error {
	n.r.opt.Observer.MIGCreated(res.Warm, res.Ensured, res.EnsureErr)
	why := "an instance was created"
	if res.Warm {
		why = "an instance that was there is used"
	}
	n.r.opt.Audit.Grant(audit.MIG, g.Reservation, 0, why, res.Err)
	if res.Err != nil {
		return fmt.Errorf("grant %q: %w", g.ID, res.Err)
	}
	return n.r.Failpoints.Eval("mig-after-cut")
}
