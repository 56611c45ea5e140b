// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package startcheck

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeNode has one limit for each container.
type fakeNode struct {
	mu       sync.Mutex
	limits   map[string]Limit
	fail     error
	reads    []time.Time
	restored []string // "id why"
	// slow is how long a reading takes.
	slow time.Duration
}

func (n *fakeNode) ReadLimits(_ context.Context, id string) ([]Limit, error) {
	n.mu.Lock()
	slow := n.slow
	n.mu.Unlock()
	time.Sleep(slow)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads = append(n.reads, time.Now())
	l, ok := n.limits[id]
	switch {
	case n.fail != nil:
		return nil, n.fail
	case !ok:
		return nil, sharing.ErrNotFound
	}
	return []Limit{l}, nil
}

func (n *fakeNode) RestoreLimits(_ context.Context, id, why string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.restored = append(n.restored, id+" "+why)
	n.limits[id] = own(2*sharing.GiB, nil)
	return nil
}

// with changes the node while a Checker may use it.
func (n *fakeNode) with(change func(*fakeNode)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

func (n *fakeNode) set(id string, l Limit) { n.with(func(n *fakeNode) { n.limits[id] = l }) }

// in runs a Checker in a separate bubble, and ends it.
func in(t *testing.T, do func(t *testing.T, n *fakeNode, c *Checker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNode{limits: map[string]Limit{"a": own(2*sharing.GiB, nil), "b": own(2*sharing.GiB, nil)}}
		c := New(n, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		do(t, n, c)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
}

func TestStartIsRefused(t *testing.T) {
	in(t, func(t *testing.T, n *fakeNode, c *Checker) {
		n.set("a", own(1<<64-1, nil))
		if err := c.Starting(t.Context(), "a"); !errors.Is(err, sharing.ErrConflict) {
			t.Errorf("a raised limit: %v", err)
		}
		if err := c.Starting(t.Context(), "none"); !errors.Is(err, sharing.ErrNotFound) {
			t.Errorf("no active grant: %v", err)
		}
		n.with(func(n *fakeNode) { n.fail = sharing.ErrUnavailable })
		if err := c.Starting(t.Context(), "b"); !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("no driver: %v", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(n.reads) != 3 || len(n.restored) != 0 {
			t.Errorf("%d readings, %q restored: a refused start is not checked again", len(n.reads), n.restored)
		}
	})
}

// The second reading comes 250 ms after the start, finds what was raised meanwhile and has it set again, once.
func TestRaisedAfterTheStart(t *testing.T) {
	in(t, func(t *testing.T, n *fakeNode, c *Checker) {
		began := time.Now()
		for _, id := range []string{"a", "b"} {
			if err := c.Starting(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		n.set("a", own(1<<64-1, nil))
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(n.reads) != 4 || n.reads[2].Sub(began) != again || n.reads[3].Sub(began) != again+100*time.Millisecond {
			t.Errorf("read at %v", n.reads)
		}
		if len(n.restored) != 1 || !strings.HasPrefix(n.restored[0], "a another program raised the driver's limit") {
			t.Errorf("restored %q", n.restored)
		}
	})
}

// What is not raised is left to the periodic verification, and what ended is forgotten.
func TestNothingToRestore(t *testing.T) {
	for name, change := range map[string]func(*fakeNode){
		"unchanged": func(*fakeNode) {},
		"lowered":   func(n *fakeNode) { n.limits["a"] = own(sharing.GiB, nil) },
		"unread":    func(n *fakeNode) { n.limits["a"] = own(0, sharing.ErrUnavailable) },
		"no driver": func(n *fakeNode) { n.fail = sharing.ErrUnavailable },
		"ended":     func(n *fakeNode) { delete(n.limits, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, n *fakeNode, c *Checker) {
				if err := c.Starting(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
				n.with(change)
				time.Sleep(time.Second)
				synctest.Wait()
				if len(n.reads) != 2 || len(n.restored) != 0 {
					t.Errorf("%d readings, restored %q", len(n.reads), n.restored)
				}
			})
		})
	}
}

// A slow driver delays the second readings of later containers; none is left out.
func TestSlowDriver(t *testing.T) {
	in(t, func(t *testing.T, n *fakeNode, c *Checker) {
		for _, id := range []string{"a", "b", "a", "b"} {
			if err := c.Starting(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		n.with(func(n *fakeNode) { n.slow = time.Second })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(n.reads) != 8 {
			t.Errorf("%d readings, want 8", len(n.reads))
		}
	})
}
