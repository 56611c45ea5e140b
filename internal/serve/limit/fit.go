// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"

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
		return nil, fmt.Errorf("bound listeners: %d connections are available and %d are needed: %w", room, fixed+least, sharing.ErrExhausted)
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
