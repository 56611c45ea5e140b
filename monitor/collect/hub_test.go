// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func TestASlowReaderIsToldWhatItMissed(t *testing.T) {
	h := NewBroadcaster()
	if h.Latest() != nil {
		t.Error("a snapshot before the first")
	}
	for range 5 {
		h.Publish(&Snapshot{})
	}
	s, missed, err := h.Next(t.Context(), 2)
	if err != nil || s.Seq != 3 || missed != 0 {
		t.Errorf("after 2: %v, missed %d, %v", s, missed, err)
	}
	for range kept + 10 {
		h.Publish(&Snapshot{})
	}
	// 45 were published, of which 16 to 45 are kept.
	s, missed, err = h.Next(t.Context(), 3)
	if err != nil || s.Seq != 16 || missed != 12 {
		t.Errorf("after 3: %d, missed %d, %v", s.Seq, missed, err)
	}
	if h.Latest().Seq != 45 {
		t.Errorf("latest is %d", h.Latest().Seq)
	}
}

func TestReadersWaitForTheNext(t *testing.T) {
	h := NewBroadcaster()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for after := range uint64(kept) { // none falls so far behind that it misses one
				s, missed, err := h.Next(t.Context(), after)
				if err != nil || s.Seq != after+1 || missed != 0 {
					t.Errorf("after %d: %v, missed %d, %v", after, s, missed, err)
					return
				}
			}
		})
	}
	for range kept {
		h.Publish(&Snapshot{})
	}
	wg.Wait()
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if _, _, err := h.Next(ctx, kept); !errors.Is(err, stop) {
		t.Errorf("a reader that left: %v", err)
	}
}

func TestShortestIntervalThatIsWanted(t *testing.T) {
	h := NewBroadcaster()
	a, b := h.Every(500*time.Millisecond), h.Every(time.Millisecond)
	if d := h.interval(time.Second); d != ShortestInterval {
		t.Errorf("below the shortest: %s", d)
	}
	b.End()
	if d := h.interval(time.Second); d != 500*time.Millisecond {
		t.Errorf("with one reader: %s", d)
	}
	if d := h.interval(200 * time.Millisecond); d != 200*time.Millisecond {
		t.Errorf("a reader that wants less often than the collector: %s", d)
	}
	a.End()
	if d := h.interval(time.Second); d != time.Second {
		t.Errorf("without readers: %s", d)
	}
}
