// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import "sync"

// changes wakes everybody who waits for the next change. A waiter that is slow misses changes in between,
// never the last. The zero value is not ready for use: see newChanges.
type changes struct {
	mu   sync.Mutex
	next chan struct{}
	// count grows by one with each change.
	count uint64
}

func newChanges() *changes { return &changes{next: make(chan struct{})} }

// wait returns a channel that is closed at the next announce.
func (c *changes) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}

// seen returns how many changes there have been.
func (c *changes) seen() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

func (c *changes) announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.next)
	c.count++
	c.next = make(chan struct{})
}
