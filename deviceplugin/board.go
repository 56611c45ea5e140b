// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"sync"
	"sync/atomic"
)

// board holds the newest list of one resource. Readers never wait for a writer: Allocate reads it.
type board struct {
	cur atomic.Pointer[list]

	mu      sync.Mutex
	changed chan struct{}
}

func newBoard() *board { return &board{changed: make(chan struct{})} }

// post puts up a list; the former one is gone, whoever has read it.
func (b *board) post(l *list) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cur.Store(l)
	close(b.changed)
	b.changed = make(chan struct{})
}

// read returns the newest list, nil before the first, and a channel that is closed when there is a newer one.
func (b *board) read() (*list, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cur.Load(), b.changed
}
