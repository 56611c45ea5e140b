// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"maps"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// leastConns is the least number of connections that Fit leaves a share.
const leastConns = 4

// Share is the part of a program's connections that one kind of listener has. No other share can use it.
type Share struct {
	Name string
	Bounds
	// Fixed shares keep all their connections where there is not room for all shares.
	Fixed bool
}

// Fit reduces the connections of the shares that are not Fixed, in proportion, until all shares together have at most
// room. The error wraps sharing.ErrExhausted if room is too small even for the Fixed shares and leastConns for each
// other.
func Fit(shares []Share, room int) ([]Share, error) {
	fixed, rest, least := 0, 0, 0
	for _, s := range shares {
		if s.Fixed {
			fixed += s.Conns
			continue
		}
		rest += s.Conns
		least += min(leastConns, s.Conns)
	}
	if room < fixed+least {
		return nil, fmt.Errorf("bound listeners: %d connections are available and %d are needed: %w", room, fixed+least,
			sharing.ErrExhausted)
	}
	out := make([]Share, len(shares))
	spare, of := room-fixed-least, rest-least
	for i, s := range shares {
		if !s.Fixed && rest > room-fixed {
			floor := min(leastConns, s.Conns)
			s.Conns = floor + (s.Conns-floor)*spare/of
			s.PeerConns = min(s.PeerConns, s.Conns)
		}
		out[i] = s
	}
	return out, nil
}

// Rate is how often something may happen: Burst times at once, and then once per Every.
type Rate struct {
	Burst int
	Every time.Duration
}

// RateLimiter decides how often peers may do what leaves a trace, such as a log entry. Make it with NewRateLimiter.
// Calls must not overlap.
//
// It remembers a peer until its burst is available again. What all peers may do together bounds how many that are.
type RateLimiter struct {
	each, all Rate
	// next is when a peer's last call would have been due at a steady rate. A peer that is not in it has its whole
	// burst.
	next  map[string]time.Time
	total time.Time
	// swept is how many peers were left by the last sweep.
	swept int
}

// sweepFrom is how many peers are remembered before the first sweep.
const sweepFrom = 64

// NewRateLimiter allows each peer one rate, and all peers together another.
func NewRateLimiter(each, all Rate) *RateLimiter {
	return &RateLimiter{each: each, all: all, next: map[string]time.Time{}}
}

// Allow reports whether the peer may act now, and counts it if so. Times must not go back.
func (p *RateLimiter) Allow(peer string, now time.Time) bool {
	mine, ok := p.each.step(p.next[peer], now)
	if !ok {
		return false
	}
	total, ok := p.all.step(p.total, now)
	if !ok {
		return false
	}
	p.next[peer], p.total = mine, total
	if len(p.next) > 2*max(p.swept, sweepFrom) {
		maps.DeleteFunc(p.next, func(_ string, next time.Time) bool { return !next.After(now) })
		p.swept = len(p.next)
	}
	return true
}

// step moves a due time on by one call, if that is no more than a burst ahead of now.
func (r Rate) step(due, now time.Time) (time.Time, bool) {
	if due.Before(now) {
		due = now
	}
	due = due.Add(r.Every)
	return due, due.Sub(now) <= time.Duration(r.Burst)*r.Every
}
