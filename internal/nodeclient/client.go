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

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// callTimeout is for calls that the agent answers from memory.
	callTimeout = 10 * time.Second
	// cutTimeout is for calls that may have to create a MIG instance first.
	cutTimeout = 75 * time.Second
	// activateTimeout is longer: an activation calls the driver, and one call of it may wait for another.
	activateTimeout = 30 * time.Second
	// maxMessage bounds a picture of a node; a node with some thousand grants needs about 1 MiB.
	maxMessage = 64 << 20
)

// SocketPath is where the agent of directory dir listens for the node API.
func SocketPath(dir string) string { return filepath.Join(dir, "kerf.sock") }

// Client is a connection to the agent of one directory. New creates it. It is safe for concurrent use. The caller
// closes it.
type Client struct {
	conn *grpc.ClientConn
	node nodeapi.NodeClient
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
	return &Client{conn: conn, node: nodeapi.NewNodeClient(conn), link: l}, nil
}

// Close ends the connection and every call on it.
func (c *Client) Close() error { return c.conn.Close() }

// Node asks for one picture of the node.
func (c *Client) Node(ctx context.Context) (*nodeapi.GetNodeResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := c.node.GetNode(ctx, &nodeapi.GetNodeRequest{})
	return r, c.plain(err, callTimeout)
}

// Reserve reserves a placement for this process, until this process ends or activates the grant.
func (c *Client) Reserve(ctx context.Context, r *nodeapi.ReserveRequest) (*nodeapi.Grant, error) {
	timeout := reserveTimeout(r)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := c.node.Reserve(ctx, r)
	return resp.GetGrant(), c.plain(err, timeout)
}

// reserveTimeout is how long a reservation may take: the agent may have to create a MIG instance for it.
func reserveTimeout(r *nodeapi.ReserveRequest) time.Duration {
	if r.GetMig() != "" || r.GetMinEnforcement() == sharing.LevelHardware.String() {
		return cutTimeout
	}
	return callTimeout
}

// PlanMIG returns the steps that make the GPUs match a SharingConfig's MIG layouts; empty means the applied one. With
// apply, it runs the possible steps.
func (c *Client) PlanMIG(ctx context.Context, config string, apply bool) ([]*nodeapi.MIGPlan, error) {
	ctx, cancel := context.WithTimeout(ctx, cutTimeout)
	defer cancel()
	resp, err := c.node.PlanMIG(ctx, &nodeapi.PlanMIGRequest{Config: config, Apply: apply})
	return resp.GetGpus(), c.plain(err, cutTimeout)
}

// ReserveForContainer reserves a placement for a container whose hook activates the grant, and returns what its OCI
// spec needs. It is reserved until this process ends or, with reserve_seconds, for that time.
func (c *Client) ReserveForContainer(ctx context.Context, r *nodeapi.ReserveRequest) (*nodeapi.ReserveResponse, error) {
	timeout := reserveTimeout(r)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r.Container = true
	resp, err := c.node.Reserve(ctx, r)
	return resp, c.plain(err, timeout)
}

// Release ends a grant that no process uses.
func (c *Client) Release(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.node.Release(ctx, &nodeapi.ReleaseRequest{Id: id})
	return c.plain(err, callTimeout)
}

// Activate sets the cap and moves this process into the grant's cgroup.
func (c *Client) Activate(ctx context.Context, r *nodeapi.ActivateRequest) (*nodeapi.ActivateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, activateTimeout)
	defer cancel()
	resp, err := c.node.Activate(ctx, r)
	return resp, c.plain(err, activateTimeout)
}

// Resize changes the total memory of a grant, also while it is active, and returns the grant as it is then.
func (c *Client) Resize(ctx context.Context, id string, memory uint64) (*nodeapi.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, activateTimeout)
	defer cancel()
	resp, err := c.node.Resize(ctx, &nodeapi.ResizeRequest{Id: id, MemoryBytes: memory})
	return resp.GetGrant(), c.plain(err, activateTimeout)
}
