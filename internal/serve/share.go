// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net"
	"sync"

	"github.com/kerf-gpu/kerf/internal/serve/limit"
)

// Share is what some listeners of a program have in common. Its methods may be called at once from several goroutines.
type Share struct {
	name   string
	bounds limit.Bounds
	// freed has a token after a connection was closed.
	freed chan struct{}

	mu       sync.Mutex
	state    *limit.State
	open     map[limit.ConnID]*Conn
	rejected Rejected
}

// Rejected counts what a Share did not take since it was made.
type Rejected struct {
	// Conns were closed at once. Evicted were idle, and closed for new connections.
	Conns, Evicted uint64
	// Requests were in excess of the requests or streams that a peer or the Share may have. Answers were in excess of the
	// bytes.
	Requests, Answers uint64
}

// NewShare makes a Share. Make the Shares of a program with a Plan.
func NewShare(s limit.Share) *Share {
	return &Share{
		name: s.Name, bounds: s.Bounds, freed: make(chan struct{}, 1),
		state: limit.New(s.Bounds), open: map[limit.ConnID]*Conn{},
	}
}

// Name is the Share's name, for metrics.
func (s *Share) Name() string { return s.name }

// Stats returns what the Share holds now, and what it rejected.
func (s *Share) Stats() (limit.Totals, Rejected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Totals(), s.rejected
}

// admit takes a connection. It returns nil, and closes c, if there is no room. crowded is true if c or another connection
// had to be closed.
func (s *Share) admit(c net.Conn, peer string, value any) (taken *Conn, crowded bool) {
	s.mu.Lock()
	id, evicted, ok := s.state.Open(peer)
	if !ok {
		s.rejected.Conns++
		s.mu.Unlock()
		_ = c.Close() // nothing was written to it
		return nil, true
	}
	taken = &Conn{Conn: c, share: s, id: id, peer: peer, value: value}
	s.open[id] = taken
	victim := s.open[evicted]
	if victim != nil {
		s.rejected.Evicted++
	}
	s.mu.Unlock()
	if victim != nil {
		_ = victim.Close() // its peer notices
	}
	return taken, victim != nil
}

// full reports whether no further connection fits.
func (s *Share) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Totals().Conns >= s.bounds.Conns
}

func (s *Share) close(id limit.ConnID) {
	s.mu.Lock()
	delete(s.open, id)
	s.state.Close(id)
	s.mu.Unlock()
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

func (s *Share) begin(id limit.ConnID, k limit.Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := s.state.Begin(id, k)
	if !ok {
		s.rejected.Requests++
	}
	return ok
}

func (s *Share) end(id limit.ConnID, k limit.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.End(id, k)
}

func (s *Share) hold(id limit.ConnID, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := s.state.Hold(id, n)
	if !ok {
		s.rejected.Answers++
	}
	return ok
}

func (s *Share) free(id limit.ConnID, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Free(id, n)
}
