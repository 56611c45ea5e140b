// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"sync"
	"time"
)

// kept is how many snapshots a reader may be behind before it misses one: three seconds at the shortest interval.
const kept = 30

// Hub hands snapshots to readers. Readers hold their place themselves, so that a slow one costs nobody anything.
type Hub struct {
	mu   sync.Mutex
	ring [kept]*Snapshot
	last uint64
	news chan struct{} // closed at the next snapshot
	want map[*Want]time.Duration
	wish chan struct{} // has a token when a shorter interval is wanted
}

// NewHub makes a hub without a snapshot.
func NewHub() *Hub {
	return &Hub{news: make(chan struct{}), want: map[*Want]time.Duration{}, wish: make(chan struct{}, 1)}
}

// Publish numbers a snapshot and gives it to all who wait. A Collector does it.
func (h *Hub) Publish(s *Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	s.Seq = h.last
	h.ring[h.last%kept] = s
	close(h.news)
	h.news = make(chan struct{})
}

// Latest returns the newest snapshot, or nil before the first.
func (h *Hub) Latest() *Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ring[h.last%kept]
}

// Next returns the oldest snapshot past the one numbered after that is still kept, waiting for one if need be, and how
// many the reader has missed in between. The error is ctx's.
func (h *Hub) Next(ctx context.Context, after uint64) (s *Snapshot, missed uint64, err error) {
	for {
		h.mu.Lock()
		news := h.news
		if h.last > after {
			first := after + 1
			if h.last > kept {
				first = max(first, h.last-kept+1)
			}
			s = h.ring[first%kept]
		}
		h.mu.Unlock()
		if s != nil {
			return s, s.Seq - after - 1, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
	}
}

// Want is a reader's wish for an interval, until it is taken back.
type Want struct{ hub *Hub }

// Every asks for samples at an interval, if the collector's own is longer.
func (h *Hub) Every(d time.Duration) *Want {
	w := &Want{h}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.want[w] = d
	select {
	case h.wish <- struct{}{}:
	default:
	}
	return w
}

// End takes the wish back.
func (w *Want) End() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	delete(w.hub.want, w)
}

// interval is the shortest that is wanted, within own and least.
func (h *Hub) interval(own time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.want {
		own = min(own, d)
	}
	return max(own, ShortestInterval)
}
