// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node"
)

// errServerOnly is what the client half of these credentials answers.
var errServerOnly = errors.New("peer credentials are for the server side")

// peerCredentials is a gRPC transport "security" that adds nothing to the bytes and takes the caller's
// identity from the kernel.
type peerCredentials struct{}

// authInfo carries the peer to the handlers.
type authInfo struct {
	credentials.CommonAuthInfo
	peer node.Peer
}

// AuthType names the mechanism, for logs.
func (authInfo) AuthType() string { return "unix-peer" }

// ServerHandshake asks the kernel who connected. A peer that cannot be told is refused.
func (peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, fmt.Errorf("connection of type %T has no peer credentials: %w", conn, sharing.ErrDenied)
	}
	p, err := process.PeerOf(uc)
	if err != nil {
		return nil, nil, fmt.Errorf("peer of node socket: %w", err)
	}
	defer p.Process.Close()
	info := authInfo{peer: node.Peer{PID: p.PID, Start: p.Process.StartTime(), UID: p.UID, GID: p.GID}}
	info.SecurityLevel = credentials.PrivacyAndIntegrity // the kernel's own memory
	return conn, info, nil
}

// ClientHandshake is not offered.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errServerOnly
}

// Info describes the mechanism.
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peer"}
}

// Clone returns the same: it has no state.
func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName is of no meaning here.
func (peerCredentials) OverrideServerName(string) error { return nil }

// callerOf is the process at the other end of the call's connection.
func callerOf(ctx context.Context) (node.Peer, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return node.Peer{}, fmt.Errorf("call without a peer: %w", sharing.ErrDenied)
	}
	info, ok := p.AuthInfo.(authInfo)
	if !ok {
		return node.Peer{}, fmt.Errorf("call without peer credentials: %w", sharing.ErrDenied)
	}
	return info.peer, nil
}
