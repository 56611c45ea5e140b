// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// naive keeps every connection in a list and counts again for each question.
type naive struct {
	Bounds
	all []*naiveConn
}

type naiveConn struct {
	id    ConnID
	peer  string
	open  bool
	busy  [2]int
	holds []int64
	since int // when it became idle
}

func (n *naive) count(f func(*naiveConn) int) (sum int) {
	for _, c := range n.all {
		sum += f(c)
	}
	return sum
}

func (n *naive) conns(peer string) int {
	return n.count(func(c *naiveConn) int {
		if c.open && (peer == "" || c.peer == peer) {
			return 1
		}
		return 0
	})
}

func (n *naive) busy(peer string, k Kind) int {
	return n.count(func(c *naiveConn) int {
		if peer == "" || c.peer == peer {
			return c.busy[k]
		}
		return 0
	})
}

func (n *naive) bytes(peer string) int64 {
	return int64(n.count(func(c *naiveConn) (sum int) {
		for _, h := range c.holds {
			if peer == "" || c.peer == peer {
				sum += int(h)
			}
		}
		return sum
	}))
}

// victim is the connection that a new one of peer replaces; nil for none.
func (n *naive) victim(peer string) *naiveConn {
	var able []*naiveConn
	for _, c := range n.all {
		if !c.open || c.busy != [2]int{} {
			continue
		}
		own, larger := c.peer == peer, n.conns(c.peer) > n.conns(peer)
		if own || n.conns(peer) < n.PeerConns && larger {
			able = append(able, c)
		}
	}
	if len(able) == 0 {
		return nil
	}
	return slices.MinFunc(able, func(a, b *naiveConn) int {
		if d := n.conns(b.peer) - n.conns(a.peer); d != 0 {
			return d
		}
		return a.since - b.since
	})
}

// TestStateAgainstNaive takes steps at random and compares each answer, and all totals, with the naive model.
func TestStateAgainstNaive(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		b := Bounds{
			Conns: 2 + rnd.IntN(8), PeerConns: 1 + rnd.IntN(6), Requests: 1 + rnd.IntN(6), PeerRequests: 1 +
				rnd.IntN(4),
			Streams: 1 + rnd.IntN(4), PeerStreams: 1 + rnd.IntN(3), Bytes: 20, PeerBytes: 5 + rnd.Int64N(15),
		}
		s, n := New(b), &naive{Bounds: b}
		for step := range 600 {
			if what := compare(s, n, rnd, step); what != "" {
				t.Fatalf("seed %d, step %d, bounds %+v: %s", seed, step, b, what)
			}
		}
	}
}

// compare takes one step with both, and says where they differ.
func compare(s *State, n *naive, rnd *rand.Rand, step int) string {
	var c *naiveConn
	if len(n.all) > 0 {
		c = n.all[rnd.IntN(len(n.all))]
	}
	k := Kind(rnd.IntN(2))
	switch action := rnd.IntN(12); {
	case c == nil || action < 4:
		return compareOpen(s, n, fmt.Sprint("p", rnd.IntN(4)), step)
	case action < 5:
		s.Close(c.id)
		c.open = false
	case action < 8:
		want := c.open && n.busy("", k) < []int{n.Requests, n.Streams}[k] && n.busy(c.peer, k) < []int{n.PeerRequests,
			n.PeerStreams}[k]
		if got := s.Begin(c.id, k); got != want {
			return fmt.Sprintf("begin is %t, want %t", got, want)
		}
		if want {
			c.busy[k]++
		}
	case action < 10:
		s.End(c.id, k)
		if c.busy[k] > 0 {
			c.busy[k]--
			c.since = step
		}
	case len(c.holds) > 0 && action < 11:
		s.Free(c.id, c.holds[0])
		c.holds = c.holds[1:]
	default:
		size := rnd.Int64N(30)
		want := c.open && (n.bytes("") == 0 || n.bytes("")+size <= n.Bytes && n.bytes(c.peer)+size <= n.PeerBytes)
		if got := s.Reserve(c.id, size); got != want {
			return fmt.Sprintf("hold of %d is %t, want %t", size, got, want)
		}
		if want {
			c.holds = append(c.holds, size)
		}
	}
	return compareTotals(s, n)
}

func compareOpen(s *State, n *naive, peer string, step int) string {
	var evict *naiveConn
	room := n.conns("") < n.Conns && n.conns(peer) < n.PeerConns
	if !room {
		evict = n.victim(peer)
	}
	id, evicted, ok := s.Open(peer)
	if want := room || evict != nil; ok != want {
		return fmt.Sprintf("open is %t, want %t", ok, want)
	}
	switch {
	case evict != nil && evicted != evict.id, evict == nil && evicted != 0:
		return fmt.Sprintf("connection %d is evicted, want %+v", evicted, evict)
	case evict != nil:
		evict.open = false
	}
	if ok {
		n.all = append(n.all, &naiveConn{id: id, peer: peer, open: true, since: step})
	}
	return compareTotals(s, n)
}

func compareTotals(s *State, n *naive) string {
	peers := map[string]bool{}
	for _, c := range n.all {
		if c.open || c.busy != [2]int{} || len(c.holds) > 0 && n.bytes(c.peer) > 0 {
			peers[c.peer] = true
		}
	}
	want := Totals{Conns: n.conns(""), Requests: n.busy("", Request), Streams: n.busy("", Stream), Bytes: n.bytes(""),
		Peers: len(peers)}
	if d := cmp.Diff(want, s.Totals()); d != "" {
		return d
	}
	for p := range peers {
		if n.conns(p) > n.PeerConns || n.busy(p, Request) > n.PeerRequests || n.busy(p, Stream) > n.PeerStreams {
			return "peer " + p + " exceeds its bounds"
		}
	}
	if want.Conns > n.Conns || want.Requests > n.Requests || want.Streams > n.Streams {
		return "the bounds are exceeded"
	}
	return ""
}

// TestNothingStaysOfPeersThatLeft opens 50,000 connections of as many peers.
func TestNothingStaysOfPeersThatLeft(t *testing.T) {
	s := New(Bounds{Conns: 3, PeerConns: 2, Requests: 2, PeerRequests: 1, Streams: 1, PeerStreams: 1, Bytes: 1,
		PeerBytes: 1})
	for i := range 50_000 {
		id, _, ok := s.Open(fmt.Sprint(i))
		if !ok || !s.Begin(id, Request) {
			t.Fatalf("peer %d is not served", i)
		}
		s.End(id, Request)
		if i%2 == 0 {
			s.Close(id)
		}
	}
	if len(s.conns) > 3 || len(s.peers) > 3 {
		t.Errorf("%d connections and %d peers are remembered", len(s.conns), len(s.peers))
	}
}

func TestCallsOutOfOrder(t *testing.T) {
	s := New(Bounds{Conns: 1, PeerConns: 1, Requests: 1, PeerRequests: 1, Streams: 1, PeerStreams: 1, Bytes: 8,
		PeerBytes: 8})
	id, _, _ := s.Open("a")
	s.End(id, Request)
	s.Free(id, 1)
	s.Close(id + 1)
	if s.Begin(id+1, Request) || s.Reserve(id+1, 1) || s.Reserve(id, -1) {
		t.Error("an unknown connection, or a negative size, is taken")
	}
	s.Close(id)
	s.Close(id)
	if s.Begin(id, Stream) || s.Reserve(id, 1) {
		t.Error("a closed connection begins a request")
	}
	if got := s.Totals(); got != (Totals{}) {
		t.Errorf("%+v", got)
	}
}

func TestFit(t *testing.T) {
	share := func(name string, conns, peer int, fixed bool) Share {
		return Share{Name: name, Bounds: Bounds{Conns: conns, PeerConns: peer}, Fixed: fixed}
	}
	all := []Share{share("hook", 100, 100, true), share("api", 200, 50, false), share("web", 100, 90, false),
		share("small", 2, 2, false)}
	tests := map[string]struct {
		room int
		want []int // connections
	}{
		"all fit":         {402, []int{100, 200, 100, 2}},
		"more than all":   {9999, []int{100, 200, 100, 2}},
		"one too few":     {401, []int{100, 199, 99, 2}},
		"half":            {251, []int{100, 98, 50, 2}},
		"least":           {110, []int{100, 4, 4, 2}},
		"less than least": {109, nil},
		"none":            {-5, nil},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Fit(all, c.room)
			if c.want == nil {
				if !errors.Is(err, sharing.ErrExhausted) {
					t.Errorf("%v, %v", got, err)
				}
				return
			}
			var conns []int
			sum := 0
			for _, s := range got {
				conns = append(conns, s.Conns)
				sum += s.Conns
				if s.PeerConns > s.Conns || s.PeerConns < 1 {
					t.Errorf("%s: %d connections of one peer, %d in all", s.Name, s.PeerConns, s.Conns)
				}
			}
			if d := cmp.Diff(c.want, conns); d != "" || err != nil || sum > c.room {
				t.Errorf("%v, sum %d: %s", err, sum, d)
			}
		})
	}
	if all[1].Conns != 200 {
		t.Error("the shares that were given are changed")
	}
}
