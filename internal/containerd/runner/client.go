// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package runner makes the containers of kerf run --image: it gets their images, starts them, and removes them.
//
// It is not in package containerd because the agent only reads from the container runtime. This package needs
// containerd's full client. With it, the linker keeps every method of every type, and the agent is larger by half.
package runner

import (
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"

	base "github.com/kerf-gpu/kerf/internal/containerd"
)

// Client is a connection to containerd that can also make containers. Open creates it. It is safe for concurrent use.
// The caller closes it.
type Client struct {
	*base.Client
	ctr *containerd.Client
}

// Open makes a client for containerd at socket. It does not connect: every call does where it has to, and says what is
// wrong.
func Open(socket string) (*Client, error) {
	c, err := base.Open(socket)
	if err != nil {
		return nil, err
	}
	ctr, err := containerd.NewWithConn(c.Conn())
	if err != nil {
		_ = c.Close() // nothing was sent on it
		return nil, fmt.Errorf("connect to container runtime at %q: %w", socket, err)
	}
	return &Client{Client: c, ctr: ctr}, nil
}
