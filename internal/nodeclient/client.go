// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeclient asks the agent of this machine over its unix socket.
//
// It promises that every call ends by itself: each has a deadline, and a watch ends when snapshots stop coming. Every
// error is one plain sentence that wraps the vocabulary of package sharing. It distinguishes a missing agent, one that
// restarts, one that went away in the middle of a call and one that answered with a rejection.
//
// It does not repeat a call. After an agent went away in the middle of a call, its effect is unknown, and only the
// caller knows what is safe then.
package nodeclient

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// callTimeout is for calls that the agent answers from memory.
	callTimeout = 10 * time.Second
	// cutTimeout is for calls that may have to create a MIG instance first.
	cutTimeout = 75 * time.Second
	// armTimeout is longer: arming talks to the driver, and one call of it may wait for another.
	armTimeout = 30 * time.Second
	// maxMessage bounds a picture of a node; a node with some thousand grants needs about 1 MiB.
	maxMessage = 64 << 20
)

// SocketPath is where the agent of directory dir listens for the node API.
func SocketPath(dir string) string { return filepath.Join(dir, "kerf.sock") }

// Client is a connection to the agent of one directory. New creates it. It is safe for concurrent use. The caller
// closes it.
type Client struct {
	conn *grpc.ClientConn
	node nodev1.NodeClient
	link *link
}

// New makes a client for the agent of directory dir. It does not connect: the first call does, and says
// what is wrong.
func New(dir string) (*Client, error) {
	l := &link{dir: dir, path: SocketPath(dir)}
	conn, err := grpc.NewClient("passthrough:///kerf-agent",
		grpc.WithContextDialer(l.dial),
		// The socket's mode and the peer credentials decide who may ask; there is nothing to encrypt.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to %q: %w", l.path, err)
	}
	return &Client{conn: conn, node: nodev1.NewNodeClient(conn), link: l}, nil
}

// Close ends the connection and every call on it.
func (c *Client) Close() error { return c.conn.Close() }

// Node asks for one picture of the node.
func (c *Client) Node(ctx context.Context) (*nodev1.GetNodeResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := c.node.GetNode(ctx, &nodev1.GetNodeRequest{})
	return r, c.plain(err, callTimeout)
}

// Claim asks for a placement for this process. It is held until this process ends, unless it is armed.
func (c *Client) Claim(ctx context.Context, r *nodev1.ClaimRequest) (*nodev1.Grant, error) {
	timeout := claimTimeout(r)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := c.node.Claim(ctx, r)
	return resp.GetGrant(), c.plain(err, timeout)
}

// claimTimeout is how long a claim may take: the agent may have to create a MIG instance for it.
func claimTimeout(r *nodev1.ClaimRequest) time.Duration {
	if r.GetMig() != "" || r.GetMinLevel() == sharing.LevelHardware.String() {
		return cutTimeout
	}
	return callTimeout
}

// PlanMIG returns the steps that make the GPUs match a SharingConfig's MIG layouts; empty means the applied one. With
// apply, it runs the possible steps.
func (c *Client) PlanMIG(ctx context.Context, document string, apply bool) ([]*nodev1.MIGPlan, error) {
	ctx, cancel := context.WithTimeout(ctx, cutTimeout)
	defer cancel()
	resp, err := c.node.PlanMIG(ctx, &nodev1.PlanMIGRequest{Document: document, Apply: apply})
	return resp.GetGpus(), c.plain(err, cutTimeout)
}

// ClaimForContainer asks for a placement for a container that a hook arms, and for what its OCI spec needs. It
// is held until this process ends or, with hold_seconds, for that time. An agent that is too old to know of
// containers is ErrUnsupported; it has then made a claim for this process, which ends with it.
func (c *Client) ClaimForContainer(ctx context.Context, r *nodev1.ClaimRequest) (*nodev1.ClaimResponse, error) {
	timeout := claimTimeout(r)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r.Container = true
	resp, err := c.node.Claim(ctx, r)
	if err == nil && resp.GetContainer() == nil {
		return nil, &Error{"the agent knows nothing of containers: it is older than this kerf", sharing.ErrUnsupported}
	}
	return resp, c.plain(err, timeout)
}

// Release gives a claim back that holds no process.
func (c *Client) Release(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.node.Release(ctx, &nodev1.ReleaseRequest{Id: id})
	return c.plain(err, callTimeout)
}

// Arm sets the cap and moves this process into the grant's cgroup.
func (c *Client) Arm(ctx context.Context, r *nodev1.ArmRequest) (*nodev1.ArmResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, armTimeout)
	defer cancel()
	resp, err := c.node.Arm(ctx, r)
	return resp, c.plain(err, armTimeout)
}

// Limit changes the memory of a grant to so many bytes in total, even while it is in use. It returns the grant as it is
// then.
func (c *Client) Limit(ctx context.Context, id string, memory uint64) (*nodev1.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, armTimeout)
	defer cancel()
	resp, err := c.node.Limit(ctx, &nodev1.LimitRequest{Id: id, MemoryBytes: memory})
	return resp.GetGrant(), c.plain(err, armTimeout)
}
