// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

type placements struct {
	nopObserver
	mu   sync.Mutex
	seen []error
	took time.Duration
}

func (p *placements) Placed(namespace, _ string, why error, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if namespace != "ns" {
		why = errors.New("of namespace " + namespace)
	}
	p.seen, p.took = append(p.seen, why), took
}

// A pod's wait is counted from its first try, with the reason of the last refusal; one that is asked for again is not.
func TestHowLongAPodWaits(t *testing.T) {
	b := newPodBench(t)
	o := &placements{}
	b.opt.Observer = o
	b.start()
	grant := func(ask sharing.ContainerRequest) error {
		return b.ReservePod(t.Context(), []sharing.ContainerRequest{ask})
	}
	first, late := b.app("first", "gpu:3"), b.app("late", "gpu:1")
	for range 2 {
		if err := grant(first); err != nil {
			t.Fatal(err)
		}
	}
	if err := grant(late); !errors.Is(err, sharing.ErrExhausted) {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	b.PodRemoved(first.Ref.PodUID)
	b.eventually("there is room", func() bool { return grant(late) == nil })
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.seen) != 2 || o.seen[0] != nil || !errors.Is(o.seen[1], sharing.ErrExhausted) ||
		o.took < 20*time.Millisecond {
		t.Errorf("placements %v, the last after %s", o.seen, o.took)
	}
}
