// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package serve is the server side of every listener of a program: TCP, Unix sockets, HTTP and gRPC.
//
// A Share is the part of the program's connections, requests and answer bytes that one kind of listener has. Package
// limit decides what a Share takes. This package asks it for each connection and request.
//
// It promises:
//   - a listener never takes what belongs to another Share, so a flood of one socket leaves the others their
//     connections;
//   - all Shares of a Plan together leave a number of file descriptors to the rest of the program;
//   - a peer that sends slowly, reads slowly or sends nothing keeps its connection for a bounded time;
//   - a stop lets answers in progress end, but waits a bounded time for them.
//
// It does not decide what is answered, and to whom. It does not bound the CPU time of one request.
package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// A listener pauses for crowdPause after crowdRun connections of which each took another's place or was rejected.
	// That bounds what a flood costs to 8,000 connections per second. A peer behind a full queue of 4,096 waits for
	// half a second.
	crowdRun   = 8
	crowdPause = time.Millisecond
	// socketBuffer is how much of an answer the kernel takes for a peer on TCP, in bytes.
	socketBuffer = 64 << 10
)

// Rules say how a Listener treats connections.
type Rules struct {
	// Identify returns the peer's name, and a value for Conn.Value. Connections with one name share the bounds of a
	// peer. Nil means PeerName. If it returns an error, the connection is closed.
	Identify func(net.Conn) (peer string, value any, err error)
	// Root is the Share of the Unix peers with user id 0. Nil means that they use the listener's own.
	Root *Share
	// Wait leaves connections in the kernel's queue while the Share is full, instead of closing any.
	Wait bool
}

// Listener takes the connections of a Share.
type Listener struct {
	net.Listener
	share  *Share
	rules  Rules
	closed chan struct{}
	once   sync.Once
	// crowd counts the calls of pause.
	crowd atomic.Uint32
}

// Listen makes a Listener of l, which it owns from then on.
func (s *Share) Listen(l net.Listener, r Rules) *Listener {
	return &Listener{Listener: l, share: s, rules: r, closed: make(chan struct{})}
}

// Accept implements net.Listener. Each connection is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		if !l.waitForRoom() {
			return nil, net.ErrClosed
		}
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		taken, crowded := l.take(c)
		if crowded {
			l.pause()
		}
		if taken != nil {
			return taken, nil
		}
	}
}

func (l *Listener) take(c net.Conn) (taken *Conn, crowded bool) {
	peer, value, share, err := l.identify(c)
	if err != nil {
		_ = c.Close() // a peer that the kernel does not name gets no answer
		return nil, true
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(socketBuffer) // without it the kernel holds more, and nothing else changes
	}
	return share.admit(c, peer, value)
}

func (l *Listener) identify(c net.Conn) (peer string, value any, share *Share, err error) {
	share = l.share
	if unix, ok := c.(*net.UnixConn); ok && l.rules.Root != nil {
		uid, err := process.PeerUID(unix)
		if err != nil {
			return "", nil, nil, err
		}
		if uid == 0 {
			share = l.rules.Root
		}
	}
	if l.rules.Identify != nil {
		peer, value, err = l.rules.Identify(c)
		return peer, value, share, err
	}
	peer, err = PeerName(c)
	return peer, nil, share, err
}

// waitForRoom returns false when the listener was closed.
func (l *Listener) waitForRoom() bool {
	for l.rules.Wait && l.share.full() {
		select {
		case <-l.share.freed:
		case <-l.closed:
			return false
		}
	}
	return true
}

// pause waits for crowdPause, or until the listener is closed, at each call of crowdRun.
func (l *Listener) pause() {
	if l.crowd.Add(1)%crowdRun != 0 {
		return
	}
	t := time.NewTimer(crowdPause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.closed:
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// PeerName names the peer: the user of a Unix peer, or the address of an IPv4 peer. Of an IPv6 peer it is the network
// of 64 bits, because such a network often belongs to one host. Errors wrap sharing.ErrDenied or
// sharing.ErrUnavailable.
func PeerName(c net.Conn) (string, error) {
	if unix, ok := c.(*net.UnixConn); ok {
		uid, err := process.PeerUID(unix)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("uid %d", uid), nil
	}
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return "", fmt.Errorf("name peer of a connection of type %T: %w", c, sharing.ErrDenied)
	}
	addr, _ := netip.AddrFromSlice(tcp.IP)
	addr = addr.Unmap()
	if addr.Is4() {
		return addr.String(), nil
	}
	network, err := addr.WithZone("").Prefix(64)
	if err != nil {
		return "", fmt.Errorf("name peer %s: %w (%w)", tcp, err, sharing.ErrDenied)
	}
	return network.String(), nil
}

// ListenUnix listens on a socket for root and one group. It replaces a socket that is there, so the caller must hold
// the lock on its folder.
func ListenUnix(path string, gid int) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	// The socket gets its name once owner and mode are right: no client connects before, or meets a socket without a
	// listener.
	temp := path + ".new"
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	err = errors.Join(os.Chmod(temp, 0o600), os.Chown(temp, 0, gid), os.Chmod(temp, 0o660), os.Rename(temp, path))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up socket %s: %w", path, err), l.Close())
	}
	return l, nil
}
