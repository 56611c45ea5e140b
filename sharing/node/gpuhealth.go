// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/health"
)

// LeavingReason of a pod: the node will be taken away.
const LeavingReason = "NodeLeaving"

// SetHealth tells a GPU's health. Claims on it stay; new ones go elsewhere.
func (r *Runtime) SetHealth(gpu sharing.GPUID, h sharing.Health, reason string) {
	r.mu.Lock()
	r.observe(gpu, health.State{Health: h, Reason: reason})
	r.mu.Unlock()
	r.notify.Audit.Health(gpu, h, reason)
	if h == sharing.HealthOK {
		r.VerifySoon()
	}
	r.changed.announce()
}

// observe takes the health of a GPU and of its shared MIG instances. It needs the lock.
func (r *Runtime) observe(gpu sharing.GPUID, s health.State) {
	ids := []sharing.GPUID{gpu}
	for _, v := range r.ledger.GPUs() {
		if part := v.GPU.UUID; part.IsPart() && part.Device() == gpu {
			ids = append(ids, part)
		}
	}
	r.health.Observe(s, ids...)
	r.applyHealth()
}

// applyHealth puts the health of all GPUs into the ledger. A GPU that left the inventory meanwhile is no error. It needs the lock.
func (r *Runtime) applyHealth() {
	for gpu, s := range r.health.All() {
		if err := r.ledger.SetHealth(gpu, s.Health, s.Reason); err != nil && !errors.Is(err, sharing.ErrNotFound) {
			r.log.Error("health not taken", "gpu", string(gpu), "error", err.Error())
		}
	}
}

// SetInstanceHealth tells the health of one of Kerf's MIG instances. Nothing new is given of an instance that is not healthy.
func (r *Runtime) SetInstanceHealth(gpu sharing.GPUID, in sharing.Instance, h sharing.Health, reason string) {
	id, sentence := sharing.PartID(gpu, in), ""
	if h != sharing.HealthOK {
		sentence = "MIG instance " + string(id) + " is " + h.String() + ": " + reason
	}
	r.mu.Lock()
	r.health.SetInstance(gpu, in, health.State{Health: h, Reason: reason})
	r.applyHealth()
	r.conditions.SetOf(conditions.Instance, string(id), sentence)
	r.mu.Unlock()
	r.notify.Audit.Health(id, h, reason)
	r.changed.announce()
}

// SetTrouble tells which GPUs must not be used although the health watch finds them healthy, and why: their MIG instances
// are not as they should be, and could not be made so.
func (r *Runtime) SetTrouble(why map[sharing.GPUID]string) {
	r.mu.Lock()
	changed := r.health.SetUnusable(why)
	r.applyHealth()
	r.mu.Unlock()
	if changed {
		r.changed.announce()
	}
}

func (r *Runtime) healthView() health.View {
	r.mu.Lock()
	defer r.mu.Unlock()
	return health.View{Rule: r.settings.Pool().Health, GPUs: r.ledger.GPUs(), Grants: r.ledger.Grants()}
}

// SetLeaving tells that the node will be taken away, and why; empty if it is not any more. Nothing new is granted then, and
// each pod that has a GPU is told.
func (r *Runtime) SetLeaving(ctx context.Context, why string) {
	r.mu.Lock()
	var grants []ledger.Grant
	if r.conditions.Set(conditions.Leaving, why) && why != "" {
		grants = r.ledger.Grants()
	}
	r.mu.Unlock()
	for _, g := range grants {
		r.notify.Pod(ctx, g, LeavingReason, why)
	}
}
