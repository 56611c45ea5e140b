// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package contextprobe

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
)

const helperPID = 7

// node is a machine of one GPU.
type node struct {
	mu      sync.Mutex
	idle    bool
	changed chan struct{}
	foreign []contextsize.Use
	// never keeps helpers from being ready; refuses is what they say instead.
	never   bool
	refuses error
	starts  int
	running int
	log     bytes.Buffer
	prober  *Prober
	stop    func()
}

// start runs a prober on an idle GPU.
func start(t *testing.T, change func(*node)) *node {
	t.Helper()
	n := &node{idle: true, changed: make(chan struct{})}
	if change != nil {
		change(n)
	}
	n.prober = &Prober{
		Sizes: Load("", nil), Log: slog.New(slog.NewTextHandler(&n.log, nil)), GPUs: n.gpus, Changed: n.wait,
		List: n.list,
		Start: func(context.Context, sharing.GPUID) (Helper, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.starts++
			n.running++
			return helper{n}, nil
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.prober.Run(ctx) }()
	n.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n.running != 0 {
			t.Errorf("%d helpers are left", n.running)
		}
	}
	return n
}

func (n *node) gpus() []contextsize.GPU {
	n.mu.Lock()
	defer n.mu.Unlock()
	return []contextsize.GPU{{ID: "GPU-0", Kind: kind, Useful: true, Idle: n.idle}}
}

func (n *node) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

func (n *node) list(context.Context, sharing.GPUID) ([]contextsize.Use, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := append([]contextsize.Use{}, n.foreign...)
	if n.running > 0 {
		out = append(out, contextsize.Use{PID: helperPID, Bytes: 500, Known: true})
	}
	return out, nil
}

// becomes changes what the node has, and tells of it.
func (n *node) becomes(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *node) counts() (starts, running int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.starts, n.running
}

type helper struct{ n *node }

func (helper) PID() int { return helperPID }

func (h helper) Ready(ctx context.Context) error {
	if h.n.never {
		<-ctx.Done()
		return ctx.Err()
	}
	return h.n.refuses
}

func (h helper) Stop() error {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.n.running--
	return nil
}

func TestAnIdleGPUIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		time.Sleep(contextsize.Rest)
		if starts, _ := n.counts(); starts != 0 {
			t.Error("measured before the GPU rested")
		}
		time.Sleep(5 * time.Second)
		if size, ok := n.prober.Sizes.Size(kind); !ok || size != 500 {
			t.Errorf("%s %v", size, ok)
		}
		time.Sleep(time.Hour)
		if starts, _ := n.counts(); starts != 1 {
			t.Errorf("%d helpers", starts)
		}
		n.stop()
	})
}

// A grant ends the measurement at once. It is made again when the GPU has rested.
func TestAGrantEndsTheMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(n *node) { n.never = true })
		time.Sleep(contextsize.Rest + 2*time.Second)
		if _, running := n.counts(); running != 1 {
			t.Fatalf("%d helpers run", running)
		}
		n.becomes(func() {})
		synctest.Wait()
		if _, running := n.counts(); running != 1 {
			t.Error("a change without a grant ended it")
		}
		n.becomes(func() { n.idle = false })
		synctest.Wait()
		if _, running := n.counts(); running != 0 {
			t.Error("the helper runs with a grant")
		}
		time.Sleep(time.Minute)
		n.becomes(func() { n.idle, n.never = true, false })
		time.Sleep(contextsize.Rest + 2*time.Second)
		if !n.prober.Sizes.Known(kind) {
			t.Error("not measured afterwards")
		}
		if strings.Contains(n.log.String(), "failed") {
			t.Errorf("a grant is no failure: %s", n.log.String())
		}
		n.stop()
	})
}

// While another process uses the GPU, nothing is measured.
func TestAForeignProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(n *node) { n.foreign = []contextsize.Use{{PID: 99, Bytes: 1, Known: true}} })
		time.Sleep(10 * time.Minute)
		if starts, _ := n.counts(); starts != 0 || n.log.Len() > 0 {
			t.Errorf("%d helpers, %s", starts, n.log.String())
		}
		n.becomes(func() { n.foreign = nil })
		time.Sleep(contextsize.Rest + 2*time.Second)
		if !n.prober.Sizes.Known(kind) {
			t.Error("not measured when it had gone")
		}
		n.stop()
	})
}

// A helper that cannot make a context, or never does, is tried again, more and more seldom. Each reason is logged once.
func TestAHelperThatFails(t *testing.T) {
	for name, change := range map[string]func(*node){
		"no library":  func(n *node) { n.refuses = errors.New("no libcuda") },
		"never ready": func(n *node) { n.never = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, change)
				time.Sleep(24 * time.Hour)
				starts, _ := n.counts()
				if logged := strings.Count(n.log.String(), "an upper bound counts"); starts < 10 || starts > 40 ||
					logged != 1 {
					t.Errorf("%d helpers in a day, logged %d times: %s", starts, logged, n.log.String())
				}
				if n.prober.Sizes.Known(kind) {
					t.Error("a size is known")
				}
				n.stop()
			})
		})
	}
}

func TestTheEndDuringAMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, func(n *node) { n.never = true })
		time.Sleep(contextsize.Rest + 2*time.Second)
		if _, running := n.counts(); running != 1 {
			t.Fatal("no helper runs")
		}
		n.stop()
	})
}
