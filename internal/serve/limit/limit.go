// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package limit decides which connections and requests a server takes. It is a state machine without I/O, clock or
// lock.
//
// It promises:
//   - the connections, requests, streams and bytes of a State, and of each peer in it, never exceed its Bounds. One
//     exception: a single answer that is larger than the byte bounds is taken while no other byte is held;
//   - a peer with fewer connections than another is never rejected for the other's idle connections: it takes their
//     place;
//   - a connection with a request in flight is never closed for another;
//   - it remembers nothing of a peer that has no connection and no request.
package limit

// Bounds are the most that a State takes, in all and of one peer. All values are positive.
type Bounds struct {
	// Conns are open connections.
	Conns, PeerConns int
	// Requests are requests in flight that end by themselves, such as a unary call. Streams last until the peer ends
	// them. The sum of PeerRequests and PeerStreams must be below PeerConns. A peer at its bounds then still has an
	// idle connection that a new one can replace. So the peer learns why its request is rejected.
	Requests, PeerRequests int
	Streams, PeerStreams   int
	// Bytes are the bytes of answers that wait for their readers.
	Bytes, PeerBytes int64
}

// ConnID names a connection within its State. 0 names none.
type ConnID uint64

// Kind is the kind of a request.
type Kind uint8

const (
	// Request ends by itself.
	Request Kind = iota
	// Stream lasts until the peer ends it.
	Stream
)

// use is what one peer has of the bounds.
type use struct {
	conns int
	busy  [2]int // by Kind
	bytes int64
}

func (u use) none() bool { return u == use{} }

// conn is a connection, open or with requests that outlive it.
type conn struct {
	peer string
	open bool
	busy [2]int
	// bytes are those of its answers.
	bytes int64
	// idle is when its last request ended, or when it was opened, as a number that grows.
	idle uint64
}

func (c *conn) idles() bool { return c.open && c.busy == [2]int{} }

// State is the connections of one share of a program's bounds. Make it with New. Calls must not overlap.
type State struct {
	bounds Bounds
	total  use
	peers  map[string]*use
	conns  map[ConnID]*conn
	last   ConnID
	clock  uint64
}

// New returns a State without connections.
func New(b Bounds) *State {
	return &State{bounds: b, peers: map[string]*use{}, conns: map[ConnID]*conn{}}
}

// Open takes a new connection of a peer. If it is rejected, ok is false. The caller must close evicted, because the new
// one takes its place; it is 0 if there was a free place.
func (s *State) Open(peer string) (id, evicted ConnID, ok bool) {
	mine := s.peers[peer]
	if mine == nil {
		mine = &use{}
	}
	switch {
	case mine.conns >= s.bounds.PeerConns:
		evicted = s.longestIdle(func(c *conn) int {
			if c.peer == peer {
				return 1
			}
			return 0
		})
	case s.total.conns >= s.bounds.Conns:
		evicted = s.longestIdle(func(c *conn) int {
			if n := s.peers[c.peer].conns; n > mine.conns || c.peer == peer {
				return n
			}
			return 0
		})
	default:
		return s.add(peer), 0, true
	}
	if evicted == 0 {
		return 0, 0, false
	}
	s.Close(evicted)
	return s.add(peer), evicted, true
}

// longestIdle is the idle connection with the highest rank above 0. Of equals it is the one that idles longest.
func (s *State) longestIdle(rank func(*conn) int) ConnID {
	var best ConnID
	highest := 0
	for id, c := range s.conns {
		if !c.idles() {
			continue
		}
		r := rank(c)
		if r > highest || r == highest && best != 0 && c.idle < s.conns[best].idle {
			best, highest = id, r
		}
	}
	return best
}

func (s *State) add(peer string) ConnID {
	s.last++
	s.conns[s.last] = &conn{peer: peer, open: true, idle: s.tick()}
	s.total.conns++
	s.of(peer).conns++
	return s.last
}

func (s *State) tick() uint64 {
	s.clock++
	return s.clock
}

func (s *State) of(peer string) *use {
	u := s.peers[peer]
	if u == nil {
		u = &use{}
		s.peers[peer] = u
	}
	return u
}

// Close ends a connection. Its requests and bytes count until End and Free: work goes on after a peer has left. A
// second call does nothing.
func (s *State) Close(id ConnID) {
	c := s.conns[id]
	if c == nil || !c.open {
		return
	}
	c.open = false
	s.total.conns--
	s.of(c.peer).conns--
	s.forget(id, c)
}

// Begin takes a request of a connection, unless it would exceed a bound. Pair each true with an End.
func (s *State) Begin(id ConnID, k Kind) bool {
	most, peerMost := s.bounds.Requests, s.bounds.PeerRequests
	if k == Stream {
		most, peerMost = s.bounds.Streams, s.bounds.PeerStreams
	}
	c := s.conns[id]
	if c == nil || !c.open || s.total.busy[k] >= most || s.of(c.peer).busy[k] >= peerMost {
		return false
	}
	c.busy[k]++
	s.total.busy[k]++
	s.of(c.peer).busy[k]++
	return true
}

// End ends a request that Begin took.
func (s *State) End(id ConnID, k Kind) {
	c := s.conns[id]
	if c == nil || c.busy[k] == 0 {
		return
	}
	c.busy[k]--
	c.idle = s.tick()
	s.total.busy[k]--
	s.of(c.peer).busy[k]--
	s.forget(id, c)
}

// Reserve takes n bytes of an answer, unless they would exceed a bound. Pair each true with a Free of the same n.
func (s *State) Reserve(id ConnID, n int64) bool {
	c := s.conns[id]
	if c == nil || !c.open || n < 0 {
		return false
	}
	mine := s.of(c.peer)
	if s.total.bytes > 0 && (n > s.bounds.Bytes-s.total.bytes || n > s.bounds.PeerBytes-mine.bytes) {
		return false
	}
	c.bytes += n
	mine.bytes += n
	s.total.bytes += n
	return true
}

// Free gives bytes back that Reserve took.
func (s *State) Free(id ConnID, n int64) {
	c := s.conns[id]
	if c == nil || n < 0 || n > c.bytes {
		return
	}
	c.bytes -= n
	s.of(c.peer).bytes -= n
	s.total.bytes -= n
	s.forget(id, c)
}

// forget drops what has nothing any more.
func (s *State) forget(id ConnID, c *conn) {
	if !c.open && c.busy == [2]int{} && c.bytes == 0 {
		delete(s.conns, id)
	}
	if u := s.peers[c.peer]; u != nil && u.none() {
		delete(s.peers, c.peer)
	}
}

// Peer returns the peer of a connection, and false for a connection that is gone.
func (s *State) Peer(id ConnID) (string, bool) {
	c, ok := s.conns[id]
	if !ok {
		return "", false
	}
	return c.peer, true
}

// Totals are what a State holds now.
type Totals struct {
	Conns, Requests, Streams, Peers int
	Bytes                           int64
}

// Totals returns what s holds now.
func (s *State) Totals() Totals {
	t := s.total
	return Totals{Conns: t.conns, Requests: t.busy[Request], Streams: t.busy[Stream], Peers: len(s.peers),
		Bytes: t.bytes}
}
