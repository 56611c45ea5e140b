// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/mode"
	"github.com/kerf-gpu/kerf/sharing/node/place"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// modeNode is the runtime as a mode.Switcher needs it.
type modeNode struct{ r *Runtime }

// View implements mode.Node, as do the others.
func (n modeNode) View(f func(mode.Snapshot)) {
	n.r.Store.Read(func(l store.Reader) { f(n.picture(n.r.placing(l))) })
}

func (n modeNode) picture(at *place.Node) mode.Snapshot {
	return mode.Snapshot{
		Ready: n.r.Ready() == nil, PodsReady: n.r.PodsReady() == nil, MinModeTime: n.r.settings.Pool().IdleTTL(),
		GPUs: at.GPUs, Capacity: at,
	}
}

func (n modeNode) ReservePod(ctx context.Context, asks []sharing.ContainerRequest) error {
	return n.r.ReservePod(ctx, asks)
}

func (n modeNode) Changed() <-chan struct{} { return n.r.changed.wait() }

func (n modeNode) Announce() { n.r.changed.announce() }

func (n modeNode) Warn(sentence string) { n.r.Conditions.Set(conditions.ModeSwitch, sentence) }

func (n modeNode) Switched(ctx context.Context, res mode.Result) {
	n.r.opt.Observer.MIGModeSwitched(res.On, res.Took, res.Err)
	n.r.Notify.Node(ctx, res.Reason, res.Message)
}
