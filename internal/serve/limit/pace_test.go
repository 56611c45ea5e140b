// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// bucket is the naive model of a Rate: tokens that are counted in nanoseconds of refill.
type bucket struct {
	Rate
	tokens time.Duration
	at     time.Time
}

func (b *bucket) has(now time.Time) bool {
	full := time.Duration(b.Burst) * b.Every
	b.tokens = min(full, b.tokens+now.Sub(b.at))
	b.at = now
	return b.tokens >= b.Every
}

// TestPaceAgainstBuckets compares each answer with buckets of tokens that are never forgotten.
func TestPaceAgainstBuckets(t *testing.T) {
	taken := 0
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		each := Rate{Burst: 1 + rnd.IntN(5), Every: time.Duration(1+rnd.IntN(50)) * time.Millisecond}
		all := Rate{Burst: 1 + rnd.IntN(30), Every: time.Duration(1+rnd.IntN(9)) * time.Millisecond}
		p, now := NewRateLimiter(each, all), time.Unix(0, 0)
		full := func(r Rate) *bucket { return &bucket{r, time.Duration(r.Burst) * r.Every, now} }
		total, peers := full(all), map[string]*bucket{}
		for step := range 3000 {
			now = now.Add(time.Duration(rnd.IntN(6)) * time.Millisecond)
			peer := fmt.Sprint(rnd.IntN(1 + 10*int(seed)))
			if peers[peer] == nil {
				peers[peer] = full(each)
			}
			mine, enough := peers[peer].has(now), total.has(now)
			want := mine && enough
			if got := p.Allow(peer, now); got != want {
				t.Fatalf("seed %d, step %d: %t, want %t", seed, step, got, want)
			}
			if want {
				peers[peer].tokens -= each.Every
				total.tokens -= all.Every
				taken++
			}
		}
	}
	if taken < 10_000 || taken > 110_000 {
		t.Errorf("%d of 120,000 are taken: the test says nothing", taken)
	}
}

// TestPaceForgetsPeers has 50,000 peers act once each.
func TestPaceForgetsPeers(t *testing.T) {
	p, now := NewRateLimiter(Rate{10, time.Second}, Rate{1000, time.Millisecond}), time.Unix(0, 0)
	for i := range 50_000 {
		now = now.Add(time.Millisecond)
		if !p.Allow(fmt.Sprint(i), now) {
			t.Fatalf("peer %d", i)
		}
		if len(p.next) > 5000 {
			t.Fatalf("%d peers are remembered after %d", len(p.next), i)
		}
	}
}
