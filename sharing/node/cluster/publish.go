// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	api "github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing/node/gpunode"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

const (
	// publishPause is the least time between two writes of the node's object.
	publishPause = time.Second
	// publishSettle is which part of that a change waits for others that belong to it: a container's end is followed by
	// its grant's.
	publishSettle = 10
	// publishRetry is how long it is until a write that failed is tried again; it doubles up to publishLast.
	publishRetry = 2 * time.Second
	publishLast  = time.Minute
	// heartbeatEvery is how often the node's Lease is renewed, and heartbeatValid how long each renewal holds.
	heartbeatEvery = 10 * time.Second
	heartbeatValid = 40 * time.Second
)

// publisher reports the node's state to the cluster. It logs each failure once. No pod waits for it: the ledger
// decides what starts here.
type publisher struct {
	log *slog.Logger
	// changed and ledger are from the node runtime.
	changed func() <-chan struct{}
	ledger  func() status.LedgerState
	// generation is that of the spec that the agent has applied, and conditions those that were published last.
	generation func() int64
	conditions []api.Condition
	// renewed signals that the Node was created again. The API server may have deleted the object.
	renewed <-chan struct{}
	// write and beat call the API server, each with a separate deadline.
	write func(ctx context.Context, status json.RawMessage) error
	beat  func(ctx context.Context, now time.Time, valid time.Duration) error
	// pause, retry and every are the constants above, but in tests.
	pause, retry, every time.Duration
}

// run writes until ctx ends.
func (p *publisher) run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { p.follow(ctx); return nil })
	g.Go(func() error { p.heartbeat(ctx); return nil })
	return g.Wait()
}

// follow writes the status whenever it has changed, at most once in pause.
func (p *publisher) follow(ctx context.Context) {
	var last []byte
	failures, wait := teller{log: p.log, what: "GPUNode"}, p.retry
	var written time.Time
	for {
		changed := p.changed()
		text, err := p.status()
		if err == nil && !bytes.Equal(text, last) {
			err = p.write(ctx, text)
			written = time.Now()
		}
		failures.tell(ctx, err)
		if err != nil {
			last = nil
			if !sleep.For(ctx, wait) {
				return
			}
			wait = min(2*wait, publishLast)
			continue
		}
		last, wait = text, p.retry
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-p.renewed:
			last = nil
		}
		if !sleep.For(ctx, max(p.pause/publishSettle, p.pause-time.Since(written))) {
			return
		}
	}
}

// status is the node's status now.
func (p *publisher) status() ([]byte, error) {
	s := gpunode.Of(p.ledger())
	s.Observe(p.generation(), p.conditions, time.Now().UTC().Format(time.RFC3339))
	p.conditions = s.Conditions
	return json.Marshal(s)
}

// heartbeat renews the Lease.
func (p *publisher) heartbeat(ctx context.Context) {
	failures := teller{log: p.log, what: "heartbeat"}
	for {
		failures.tell(ctx, p.beat(ctx, time.Now(), heartbeatValid))
		if !sleep.For(ctx, p.every) {
			return
		}
	}
}

// teller logs an error once, and its end.
type teller struct {
	log    *slog.Logger
	what   string
	failed bool
}

func (t *teller) tell(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && !t.failed:
		t.log.Warn("failed to update the cluster, will retry", "what", t.what, "error", err.Error())
		t.failed = true
	case err == nil && t.failed:
		t.log.Info("updated the cluster after failures", "what", t.what)
		t.failed = false
	}
}
