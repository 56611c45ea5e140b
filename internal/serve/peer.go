// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
)

var errServerOnly = errors.New("peer credentials are for the server side")

// Identity is the process that connected a Unix socket, as the kernel noted it.
type Identity struct {
	PID int
	// Start is when it started, in clock ticks since boot. With PID it is never another process's.
	Start    uint64
	UID, GID uint32
}

// peerCredentials takes Conns alone, and identifies their peers if it should.
type peerCredentials struct{ identify bool }

// authInfo is what a call's context has of its connection.
type authInfo struct {
	credentials.CommonAuthInfo
	conn       *Conn
	identified bool
	identity   Identity
}

// AuthType implements credentials.AuthInfo.
func (authInfo) AuthType() string { return "unix-peer" }

// ServerHandshake implements credentials.TransportCredentials.
func (p peerCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, ok := c.(*Conn)
	if !ok {
		return nil, nil, fmt.Errorf("connection of type %T is not counted: %w", c, sharing.ErrDenied)
	}
	info := authInfo{conn: conn, identified: p.identify}
	info.SecurityLevel = credentials.PrivacyAndIntegrity // the kernel's own memory
	if !p.identify {
		return conn, info, nil
	}
	unix, ok := conn.NetConn().(*net.UnixConn)
	if !ok {
		return nil, nil, fmt.Errorf("connection of type %T has no peer credentials: %w", conn.NetConn(), sharing.ErrDenied)
	}
	who, err := process.PeerOf(unix)
	if err != nil {
		return nil, nil, fmt.Errorf("peer of socket: %w", err)
	}
	defer who.Process.Close()
	info.identity = Identity{PID: who.PID, Start: who.Process.StartTime(), UID: who.UID, GID: who.GID}
	return conn, info, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errServerOnly
}

// Info implements credentials.TransportCredentials.
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peer"}
}

// Clone implements credentials.TransportCredentials.
func (p peerCredentials) Clone() credentials.TransportCredentials { return p }

// OverrideServerName implements credentials.TransportCredentials.
func (peerCredentials) OverrideServerName(string) error { return nil }

// IdentityOf is the process at the other end of a call's connection. The error wraps sharing.ErrDenied.
func IdentityOf(ctx context.Context) (Identity, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Identity{}, fmt.Errorf("call without a peer: %w", sharing.ErrDenied)
	}
	info, ok := p.AuthInfo.(authInfo)
	if !ok || !info.identified {
		return Identity{}, fmt.Errorf("call without peer credentials: %w", sharing.ErrDenied)
	}
	return info.identity, nil
}
