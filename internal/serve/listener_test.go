// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/kerf-gpu/kerf/internal/serve/limit"
)

// TestOneOfManyIsServed lets one peer open four times as many connections as it may have. All that is closed is its
// own, and its newest connection is answered.
func TestOneOfManyIsServed(t *testing.T) {
	const most = 8
	var greedy atomic.Bool
	greedy.Store(true)
	s := newSite(t, func(b *limit.Bounds, r *Rules) {
		b.Conns, b.PeerConns, b.PeerRequests = 3*most, most, most-1
		r.Identify = func(net.Conn) (string, any, error) {
			if greedy.Load() {
				return "greedy", nil, nil
			}
			return "modest", nil, nil
		}
	}, text("ok"))
	var held []net.Conn
	for range 4 * most {
		held = append(held, s.dial())
	}
	newest := held[len(held)-1]
	if code, _ := s.ask(newest, get); code != 200 {
		t.Errorf("the newest: %d", code)
	}
	if code, _ := s.ask(held[0], get); code != 0 {
		t.Errorf("the oldest is open: %d", code)
	}
	greedy.Store(false) // all before were identified, since the newest was answered
	if code, _ := s.ask(s.dial(), get); code != 200 {
		t.Errorf("another peer: %d", code)
	}
	now, rejected := s.share.Stats()
	if now.Conns > most+1 || rejected.Evicted != 3*most || rejected.Conns != 0 {
		t.Errorf("%+v, rejected %+v", now, rejected)
	}
}

// TestManyPeersWithOneConnectionEach fills the share with peers of one connection: the next one takes the oldest's
// place.
func TestManyPeersWithOneConnectionEach(t *testing.T) {
	const most = 8
	var n atomic.Int32
	s := newSite(t, func(b *limit.Bounds, r *Rules) {
		b.Conns = most
		r.Identify = func(net.Conn) (string, any, error) { return strconv.Itoa(int(n.Add(1))), nil, nil }
	}, text("ok"))
	var held []net.Conn
	for range 5 * most {
		held = append(held, s.dial())
	}
	if code, _ := s.ask(held[len(held)-1], get); code != 200 {
		t.Errorf("the newest: %d", code)
	}
	if now, rejected := s.share.Stats(); now.Conns > most || now.Peers > most || rejected.Evicted != 4*most {
		t.Errorf("%+v, rejected %+v", now, rejected)
	}
}

// TestWaitLeavesConnectionsInTheQueue accepts no more than the share has, and closes none.
func TestWaitLeavesConnectionsInTheQueue(t *testing.T) {
	b := roomy()
	b.Conns, b.PeerConns = 2, 2
	s := NewShare(limit.Share{Bounds: b})
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	l := s.Listen(inner, Rules{Wait: true})
	for range 3 {
		c, err := net.Dial("unix", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	first, second := <-accepted, <-accepted
	if !s.full() {
		t.Error("the share has room")
	}
	_ = first.Close()
	third := <-accepted // only now
	if now, rejected := s.Stats(); now.Conns != 2 || rejected != (Rejected{}) {
		t.Errorf("%+v, rejected %+v", now, rejected)
	}
	_ = l.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a listener that was closed while it waited: %v", err)
	}
	for _, c := range []net.Conn{second, third} {
		_ = c.Close()
	}
}

// TestRootHasItsOwnShare fills the users' share of a socket. Root is served from another.
func TestRootHasItsOwnShare(t *testing.T) {
	users, root := NewShare(limit.Share{Name: "users", Bounds: roomy()}),
		NewShare(limit.Share{Name: "root", Bounds: roomy()})
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	l := users.Listen(inner, Rules{Root: root})
	defer l.Close()
	peer, err := net.Dial("unix", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := users
	if name, _ := PeerName(Unwrap(c)); name == "uid 0" {
		want = root
	}
	if got := c.(*Conn).share; got != want {
		t.Errorf("%s", got.Name())
	}
}

func TestPeerName(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "2001:db8:1:2:3::4": "2001:db8:1:2::/64",
		"fe80::1": "fe80::/64",
	} {
		if got, err := PeerName(from{addr: net.TCPAddr{IP: net.ParseIP(addr), Zone: "eth0"}}); got != want ||
			err != nil {
			t.Errorf("%s: %q, %v", addr, got, err)
		}
	}
	if _, err := PeerName(from{}); err == nil {
		t.Error("a peer without an address has a name")
	}
}

// from is a connection of an address.
type from struct {
	net.Conn
	addr net.TCPAddr
}

func (f from) RemoteAddr() net.Addr {
	if f.addr.IP == nil {
		return &net.UDPAddr{}
	}
	return &f.addr
}

// TestSlowReaderHoldsBytes has one reader take nothing of a large answer: others get the answer to come later, and h is
// not occupied.
func TestSlowReaderHoldsBytes(t *testing.T) {
	const size = 4 << 20 // more than the sockets of both sides buffer
	large := make([]byte, size)
	var calls atomic.Int32
	h := Rendered(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("X-Own", "1")
		_, _ = w.Write(large)
	}), 1)
	s := newSite(t, func(b *limit.Bounds, _ *Rules) { b.Bytes, b.PeerBytes = size+size/2, size+size/2 }, h)
	slow := s.dial()
	if _, err := slow.Write([]byte(get + "\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Read(make([]byte, 1)); err != nil { // it begins
		t.Fatal(err)
	}
	if code, _ := s.ask(s.dial(), get); code != http.StatusServiceUnavailable {
		t.Errorf("a second answer of that size: %d", code)
	}
	if now, rejected := s.share.Stats(); now.Bytes != size || rejected.Answers != 1 || calls.Load() != 2 {
		t.Errorf("%+v, rejected %+v, %d calls", now, rejected, calls.Load())
	}
	_ = slow.Close()
	for { // until the server has noticed
		code, body := s.ask(s.dial(), get)
		if code == 200 && len(body) == size {
			break
		}
		if code != http.StatusServiceUnavailable {
			t.Fatalf("after the slow reader left: %d, %d bytes", code, len(body))
		}
	}
}
