// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/settings/applied"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// ConfigSource tells where the applied configuration came from.
type ConfigSource = applied.Source

// Settings own the applied configuration, and what each GPU has of it.
func (r *Runtime) Settings() *applied.Settings { return r.settings }

// settingsNode is the runtime as applied.Settings needs it.
type settingsNode struct{ r *Runtime }

// View implements applied.Node. The caps of grants stay as they are: GPUs in use keep their settings.
func (n settingsNode) View(f func([]ledger.Grant, bool) (amounts bool)) {
	_ = n.r.Store.UpdateLater(func(l *ledger.Ledger) error {
		if f(l.Grants(), n.Known()) && n.r.Driver.Get() != nil {
			n.r.TakeInventory(l)
		}
		return nil
	})
}

// Known implements applied.Node.
func (n settingsNode) Known() bool { return n.r.Ready() == nil }

// gpuOf is the GPU of that id, or its id alone where it is not there.
func gpuOf(l store.Reader, id sharing.GPURef) sharing.GPU {
	if v, ok := l.GPU(id); ok {
		return v.GPU
	}
	return id.GPU()
}
