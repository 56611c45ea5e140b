// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"sync"

	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// most is how many transitions wait for a subscriber.
const most = 4096

// Subscription has the transitions that its subscriber has not taken yet. It is safe for concurrent use.
type Subscription struct {
	store *Store
	wants func(ledger.Transition) bool
	ready chan struct{}

	// mu is taken inside of the store.
	mu      sync.Mutex
	waiting []ledger.Transition
	lost    bool
}

// Subscribe delivers the transitions that wants chooses from now on, in order, until Close. Its first Take tells to
// read the grants. A container that starts makes some ten transitions. Each one that is delivered wakes the subscriber,
// which then competes with the start.
func (s *Store) Subscribe(wants func(ledger.Transition) bool) *Subscription {
	sub := &Subscription{store: s, wants: wants, ready: make(chan struct{}, 1), lost: true}
	sub.ready <- struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers = append(s.subscribers, sub)
	return sub
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.subscribers = slices.DeleteFunc(s.store.subscribers, func(o *Subscription) bool { return o == s })
}

// Ready receives when there may be something to take.
func (s *Subscription) Ready() <-chan struct{} { return s.ready }

// Take returns the transitions since the last call. If resync is true, some before them are missing. The subscriber
// then reads the grants, which are at least as new as what is missing.
func (s *Subscription) Take() (steps []ledger.Transition, resync bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	steps, resync = s.waiting, s.lost
	s.waiting, s.lost = nil, false
	return steps, resync
}

// deliver never waits. If the subscriber takes too little, all that waits is dropped, and it has to read the grants.
func (s *Subscription) deliver(steps []ledger.Transition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := 0
	for _, step := range steps {
		if !s.wants(step) {
			continue
		}
		wanted++
		if len(s.waiting) == most {
			s.waiting, s.lost = nil, true
		}
		s.waiting = append(s.waiting, step)
	}
	if wanted == 0 {
		return
	}
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// tell delivers what a change did. It needs the lock.
func (s *Store) tell() {
	steps := s.ledger.Transitions()
	if len(steps) == 0 {
		return
	}
	for _, sub := range s.subscribers {
		sub.deliver(steps)
	}
}
