// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package handles keeps what a grant has outside of the ledger: the process that waits for it, and the lock of its
// caps.
package handles

import (
	"sync"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// Handles has, for each grant, what is no value: the process that waits for it, and the lock of its caps. The zero
// value has none. It is safe for concurrent use.
type Handles struct {
	mu sync.Mutex
	of map[ledger.GrantID]*handle
}

type handle struct {
	// owner is the reserving process; nil once it is activated, when the cgroup tells all, and for grants found at a
	// restart.
	owner *process.Handle
	// capping is held while the caps of an attachment that runs are read and changed. So of two goroutines that do it,
	// the second sees what the first did. It is never taken inside of the store.
	capping sync.Mutex
}

// Add begins to keep what belongs to a grant. owner may be nil, and is closed by LetGo or Remove.
func (h *Handles) Add(id ledger.GrantID, owner *process.Handle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = map[ledger.GrantID]*handle{}
	}
	h.of[id] = &handle{owner: owner}
}

// Owner is the process that waits for the grant; nil for none.
func (h *Handles) Owner(id ledger.GrantID) *process.Handle {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.of[id]; one != nil {
		return one.owner
	}
	return nil
}

// Owners are the processes that wait for grants.
func (h *Handles) Owners() map[ledger.GrantID]*process.Handle {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[ledger.GrantID]*process.Handle{}
	for id, one := range h.of {
		if one.owner != nil {
			out[id] = one.owner
		}
	}
	return out
}

// Capping is the lock of a grant's caps; nil if nothing is kept of that grant.
func (h *Handles) Capping(id ledger.GrantID) *sync.Mutex {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.of[id]; one != nil {
		return &one.capping
	}
	return nil
}

// LetGo closes the handle of the process that waits for the grant.
func (h *Handles) LetGo(id ledger.GrantID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.of[id]; one != nil && one.owner != nil {
		one.owner.Close()
		one.owner = nil
	}
}

// Remove is LetGo, and nothing is kept of the grant any more. It reports whether anything was.
func (h *Handles) Remove(id ledger.GrantID) bool {
	h.LetGo(id)
	h.mu.Lock()
	defer h.mu.Unlock()
	_, known := h.of[id]
	delete(h.of, id)
	return known
}

// Len is of how many grants anything is kept.
func (h *Handles) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.of)
}
