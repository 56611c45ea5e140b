// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package work queues the grants or GPUs that an owner is to look at.
//
// The queue of client-go starts a goroutine when it is made, and gives its keys one by one. Here the owner gets all
// keys that wait, so that it writes one checkpoint for them.
package work

import (
	"context"
	"sync"
	"time"
)

// Queue has the keys that wait. A key waits once, however often it is added. Make it with New; it is safe for
// concurrent use.
type Queue[K comparable] struct {
	ready chan struct{}

	mu sync.Mutex
	// waiting has the keys in the order of their addition; is has the same.
	waiting []K
	is      map[K]bool
	// later are the keys that are added when their time comes.
	later map[K]*time.Timer
}

// New makes an empty queue.
func New[K comparable]() *Queue[K] {
	return &Queue[K]{ready: make(chan struct{}, 1), is: map[K]bool{}, later: map[K]*time.Timer{}}
}

// Add adds keys that do not wait yet.
func (q *Queue[K]) Add(keys ...K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range keys {
		q.forget(k)
		if !q.is[k] {
			q.is[k], q.waiting = true, append(q.waiting, k)
		}
	}
	if len(q.waiting) > 0 {
		select {
		case q.ready <- struct{}{}:
		default:
		}
	}
}

// After adds a key after some time, unless the key waits, or is to be added, already.
func (q *Queue[K]) After(k K, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.is[k] || q.later[k] != nil {
		return
	}
	q.later[k] = time.AfterFunc(d, func() { q.Add(k) })
}

// forget needs the lock.
func (q *Queue[K]) forget(k K) {
	if t := q.later[k]; t != nil {
		t.Stop()
		delete(q.later, k)
	}
}

// Take removes all keys that wait, and returns them in the order of their addition.
func (q *Queue[K]) Take() []K {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.waiting
	q.waiting = nil
	clear(q.is)
	return out
}

// Run calls do with all keys that wait, as soon as there are any and at most once in a gap. It ends with ctx. One Run
// at a time.
func (q *Queue[K]) Run(ctx context.Context, gap time.Duration, do func(keys []K)) {
	defer q.stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.ready:
		}
		if keys := q.Take(); len(keys) > 0 {
			do(keys)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gap):
		}
	}
}

// stop forgets the keys that are to be added later.
func (q *Queue[K]) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k := range q.later {
		q.forget(k)
	}
}
