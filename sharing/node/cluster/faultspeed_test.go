// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/monitor/health"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// faultyNode has GPUs that fail, what is known of them, and what the API server received.
type faultyNode struct {
	mu      sync.Mutex
	lost    map[sharing.GPUID]bool
	hangs   map[sharing.GPUID]bool
	xids    chan health.XID
	gpus    []sharing.GPUID
	known   map[sharing.GPUID]sharing.Health
	changed chan struct{}
	// received are the last states other than healthy that the API server received since it was emptied.
	received map[sharing.GPUID]string
}

func (n *faultyNode) Check(ctx context.Context, id sharing.GPUID) error {
	n.mu.Lock()
	lost, hangs := n.lost[id], n.hangs[id]
	n.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return fmt.Errorf("it hangs: %w", sharing.ErrUnavailable)
	}
	if lost {
		return fmt.Errorf("it is gone: %w", sharing.ErrLost)
	}
	return nil
}

func (n *faultyNode) Recovery(context.Context, sharing.GPUID) health.Recovery {
	return health.Recovery{Known: true}
}
func (n *faultyNode) Sensors(context.Context, sharing.GPUID) health.Sensors { return health.Sensors{} }

func (n *faultyNode) NextXID(ctx context.Context) (health.XID, error) {
	select {
	case <-ctx.Done():
		return health.XID{}, ctx.Err()
	case x := <-n.xids:
		return x, nil
	}
}

// tell is what the runtime does with a change of health, as far as others see it.
func (n *faultyNode) tell(id sharing.GPUID, h sharing.Health, _ string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[id] = h
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *faultyNode) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

func (n *faultyNode) books() (b status.LedgerState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range n.gpus {
		b.GPUs = append(b.GPUs, status.BookedGPU{View: ledger.View{GPU: sharing.GPU{UUID: id, Health: n.known[id]}}})
	}
	return b
}

func (n *faultyNode) write(_ context.Context, text json.RawMessage) error {
	var s gpunode.Status
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range s.GPUs {
		if id := sharing.GPUID(g.UUID); g.Health != "healthy" || n.received[id] == "" {
			n.received[id] = g.Health
		}
	}
	return nil
}

// A fault appears in the GPUNode within five seconds at the agent's own interval. It appears for no other GPU. This
// holds for each kind of fault and at any time, also if another GPU hangs or if a write was just made.
func TestTheClusterIsToldOfAFaultWithinFiveSeconds(t *testing.T) {
	const bad, other = sharing.GPUID("GPU-1"), sharing.GPUID("GPU-2")
	for name, fault := range map[string]struct {
		beside bool // another one hangs
		do     func(*faultyNode)
		want   string
	}{
		"an XID": {false,
			func(n *faultyNode) { n.xids <- health.XID{GPU: bad, GI: health.WholeGPU, XID: 48} }, "unhealthy"},
		"lost without a word": {false, func(n *faultyNode) { n.lost[bad] = true }, "lost"},
		"one that hangs":      {false, func(n *faultyNode) { n.hangs[bad] = true }, "suspect"},
		"an XID next to one that hangs": {true,
			func(n *faultyNode) { n.xids <- health.XID{GPU: bad, GI: health.WholeGPU, XID: 79} }, "lost"},
		"lost next to one that hangs":  {true, func(n *faultyNode) { n.lost[bad] = true }, "lost"},
		"hangs next to one that hangs": {true, func(n *faultyNode) { n.hangs[bad] = true }, "suspect"},
	} {
		for after := time.Duration(0); after < 4*time.Second; after += 170 * time.Millisecond {
			t.Run(fmt.Sprint(name, " after ", after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := &faultyNode{
						lost: map[sharing.GPUID]bool{}, hangs: map[sharing.GPUID]bool{other: fault.beside},
						xids: make(chan health.XID, 1), changed: make(chan struct{}),
						gpus: []sharing.GPUID{"GPU-0", bad, other, "GPU-3"}, known: map[sharing.GPUID]sharing.Health{},
						received: map[sharing.GPUID]string{},
					}
					ctx, cancel := context.WithCancel(t.Context())
					w := &health.Watch{Driver: n, GPUs: n.gpus, Log: slog.New(slog.DiscardHandler), Report: n.tell,
						Every: health.Interval, Deadline: health.Deadline}
					p := &publisher{
						log: slog.New(slog.DiscardHandler), changed: n.wait, ledger: n.books, write: n.write,
						generation: func() int64 { return 1 },
						beat:       func(context.Context, time.Time, time.Duration) error { return nil },
						pause:      publishPause, retry: publishRetry, every: time.Hour,
					}
					var wg sync.WaitGroup
					wg.Go(func() { _ = w.Run(ctx) })
					wg.Go(func() { _ = p.run(ctx) })
					time.Sleep(10*time.Second + after)
					n.mu.Lock()
					fault.do(n)
					clear(n.received)
					n.mu.Unlock()
					time.Sleep(5 * time.Second)
					n.mu.Lock()
					for _, id := range n.gpus {
						want := map[bool]string{true: fault.want, false: "healthy"}[id == bad]
						if id == other && fault.beside {
							want = "suspect"
						}
						if got := cmp.Or(n.received[id], "healthy"); got != want {
							t.Errorf("%s is reported as %q, want %q", id, got, want)
						}
					}
					n.mu.Unlock()
					cancel()
					wg.Wait()
				})
			})
		}
	}
}
