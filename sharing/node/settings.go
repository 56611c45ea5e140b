// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/settings/applied"
)

// ConfigSource tells where the applied configuration came from.
type ConfigSource = applied.Source

// Settings own the applied configuration, and what each GPU has of it.
func (r *Runtime) Settings() *applied.Settings { return r.settings }

// settingsNode is the runtime as applied.Settings needs it.
type settingsNode struct{ r *Runtime }

// View implements applied.Node. The caps of grants stay as they are: GPUs in use keep their settings.
func (n settingsNode) View(f func([]ledger.Grant, bool) (amounts bool)) {
	n.r.mu.Lock()
	defer n.r.mu.Unlock()
	if f(n.Grants()) && n.r.Driver.Get() != nil {
		n.r.TakeInventory()
	}
}

// Grants implements applied.Node. It needs the lock.
func (n settingsNode) Grants() (grants []ledger.Grant, known bool) {
	return n.r.ledger.Grants(), n.r.Ready() == nil
}

// gpu is the GPU of that id, or its id alone where it is not there. It needs the lock.
func (r *Runtime) gpu(id sharing.GPUID) sharing.GPU {
	if v, ok := r.ledger.GPU(id); ok {
		return v.GPU
	}
	return sharing.GPU{UUID: id}
}
