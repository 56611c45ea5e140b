// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestPulse(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		beats []time.Duration // at these times
		doubt bool            // at the last of them
	}{
		"at once":                 {beats: []time.Duration{0}},
		"regular":                 {beats: []time.Duration{0, 100 * ms, 200 * ms}},
		"late, as on a busy node": {beats: []time.Duration{0, 1000 * ms, 1900 * ms}},
		"just stopped":            {beats: []time.Duration{0, 100 * ms, 1200 * ms}, doubt: true},
		"stopped a moment ago":    {beats: []time.Duration{0, 5000 * ms, 5500 * ms, 5999 * ms}, doubt: true},
		"stopped, and settled":    {beats: []time.Duration{0, 5000 * ms, 5500 * ms, 6000 * ms}},
		"stopped again": {beats: []time.Duration{0, 5000 * ms, 5500 * ms, 6000 * ms, 8000 * ms},
			doubt: true},
		"asked before it has beaten": {beats: []time.Duration{3000 * ms}, doubt: true},
	} {
		t.Run(name, func(t *testing.T) {
			var now, doubt time.Duration
			p := newPulse()
			p.now = func() time.Duration { return now }
			for _, now = range tc.beats {
				doubt = p.beat()
			}
			if (doubt > 0) != tc.doubt {
				t.Errorf("doubt for %v, want any: %t", doubt, tc.doubt)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := p.steady(ctx); errors.Is(err, context.Canceled) != tc.doubt {
				t.Errorf("steady() = %v", err)
			}
		})
	}
}
