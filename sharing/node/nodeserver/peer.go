// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"context"

	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// callerOf is the process at the other end of the call's connection.
func callerOf(ctx context.Context) (lifecycle.Peer, error) {
	who, err := serve.IdentityOf(ctx)
	if err != nil {
		return lifecycle.Peer{}, err
	}
	return lifecycle.Peer{PID: who.PID, Start: who.Start, UID: who.UID, GID: who.GID}, nil
}
