// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/internal/serve/limit"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// maxID bounds the id of a grant in a call, in bytes. The agent's own have 12.
const maxID = 64

// userRate and allRate bound how often users other than root make grants, activate grants or change limits. Each such
// call writes log and audit entries, so without a bound one user could displace the audit log of all.
func userRate() limit.Rate { return limit.Rate{Burst: 512, Every: 50 * time.Millisecond} }

func allRate() limit.Rate { return limit.Rate{Burst: 2048, Every: 10 * time.Millisecond} }

// pace bounds how often users make calls that leave a trace.
type pace struct {
	now func() time.Time
	mu  sync.Mutex
	// of are the kinds of calls, so that who made a grant can also activate it.
	of map[string]*limit.RateLimiter
}

func newPace(now func() time.Time) *pace { return &pace{now: now, of: map[string]*limit.RateLimiter{}} }

// allow returns an error that wraps sharing.ErrUnavailable if the user has to wait before a call of that kind.
func (p *pace) allow(uid uint32, kind string) error {
	if uid == 0 {
		return nil // root can write to the log anyway
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[kind] == nil {
		p.of[kind] = limit.NewRateLimiter(userRate(), allRate())
	}
	if !p.of[kind].Allow(fmt.Sprint(uid), p.now()) {
		return fmt.Errorf("%s: uid %d, or all users together, make too many such calls; try again later: %w", kind, uid,
			sharing.ErrUnavailable)
	}
	return nil
}

// pacedCaller is callerOf for a call of a kind that leaves a trace. id is the grant that it names, empty for none.
func (s *Server) pacedCaller(ctx context.Context, kind, id string) (lifecycle.Peer, error) {
	peer, err := callerOf(ctx)
	if err != nil {
		return lifecycle.Peer{}, err
	}
	if len(id) > maxID {
		return lifecycle.Peer{}, fmt.Errorf("%s: no grant has an id of %d bytes: %w", kind, len(id),
			sharing.ErrNotFound)
	}
	return peer, s.pace.allow(peer.UID, kind)
}
