// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
)

// instanceNode is the runtime as an instances.Reconciler needs it.
type instanceNode struct{ r *Runtime }

// View implements instances.Node, as do the others.
func (n instanceNode) View(f func(grants []instances.Grant, ready bool)) {
	n.r.mu.Lock()
	defer n.r.mu.Unlock()
	f(n.grants(), n.r.Recovery.Restored && n.r.Driver.Get() != nil)
}

// grants needs the lock.
func (n instanceNode) grants() []instances.Grant {
	var out []instances.Grant
	for _, g := range n.r.ledger.Grants() {
		if one, is := n.of(g); is {
			out = append(out, one)
		}
	}
	return out
}

// of needs the lock.
func (n instanceNode) of(g ledger.Grant) (instances.Grant, bool) {
	if !instances.In(g.Claim.Placement) {
		return instances.Grant{}, false
	}
	f := g.Claim.Placement[0]
	return instances.Grant{
		Claim: g.Claim, GPU: n.r.gpu(f.GPU.Device()), Instance: instances.Of(f, n.r.ledger.GPU),
		Container: g.Claim.Standalone || g.Claim.Owner.Pod(), Active: g.Lease != nil,
	}, true
}

func (n instanceNode) Grant(id ledger.ClaimID) (instances.Grant, bool) {
	n.r.mu.Lock()
	defer n.r.mu.Unlock()
	g, ok := n.r.ledger.Get(id)
	if !ok {
		return instances.Grant{}, false
	}
	return n.of(g)
}

func (n instanceNode) Changed() <-chan struct{} { return n.r.changed.wait() }

func (n instanceNode) Announce() { n.r.changed.announce() }

func (n instanceNode) Created(g instances.Grant, res instances.Result) error {
	n.r.opt.Observer.MIGCut(res.Warm, res.Ensured, res.EnsureErr)
	why := "an instance was cut"
	if res.Warm {
		why = "an instance that was there is used"
	}
	n.r.opt.Audit.Claim(audit.MIG, g.Claim, 0, why, res.Err)
	if res.Err != nil {
		return fmt.Errorf("claim %q: %w", g.ID, res.Err)
	}
	return n.r.Failpoints.Eval("mig-after-cut")
}
