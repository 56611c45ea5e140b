// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"sync"
	"time"
)

// changeGap is the least time between two notifications. Many containers that start at once change the ledger several
// times each, and each subscriber reads all of it.
const changeGap = 20 * time.Millisecond

// changes wakes everybody who waits for the next change, at once or as soon as changeGap has passed since the last
// time. A waiter misses changes in between, never the last. The zero value is not ready for use: see newChanges.
type changes struct {
	mu   sync.Mutex
	next chan struct{}
	// count grows by one with each change.
	count uint64
	// woke is when next was closed last, and due is true while it is about to be.
	woke time.Time
	due  bool
}

func newChanges() *changes { return &changes{next: make(chan struct{})} }

// wait returns a channel that is closed after the next announce.
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
	c.count++
	if c.due {
		return
	}
	passed := time.Since(c.woke)
	if passed >= changeGap {
		c.wake()
		return
	}
	c.due = true
	time.AfterFunc(changeGap-passed, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.due = false
		c.wake()
	})
}

// wake needs the lock.
func (c *changes) wake() {
	close(c.next)
	c.next, c.woke = make(chan struct{}), time.Now()
}
