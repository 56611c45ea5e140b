// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// backendStates are what each backend can do for shares of the GPU.
func (r *Runtime) backendStates(g sharing.GPU, grants []ledger.Grant) []status.Backend {
	if r.Driver.Get() == nil || g.MIG {
		return nil
	}
	rep, ok := r.Driver.Get().Levels[g.Ref()]
	if !ok {
		return nil
	}
	list := r.settings.BackendsOn(g, grants, "")
	var out []status.Backend
	for _, b := range sharing.Backends() {
		out = append(out, status.Backend{Backend: b, Listed: slices.Contains(list, b), Support: rep.Of(b)})
	}
	return out
}
