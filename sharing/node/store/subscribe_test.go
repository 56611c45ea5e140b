// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// change begins and ends n grants, one after the other. The first has the id from.
func (b *bench) change(t *testing.T, from, n int) {
	t.Helper()
	for i := range n {
		id := ledger.GrantID(fmt.Sprintf("g-%05d", from+i))
		for _, step := range []func(*ledger.Ledger) error{
			func(l *ledger.Ledger) error { return l.Restore(ledger.Reservation{ID: id}, nil) },
			func(l *ledger.Ledger) error { return l.Release(id) },
		} {
			if err := b.UpdateLater(step); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// inOrder requires the transitions of change, without a hole, and returns the number of the grant after the last one.
func inOrder(t *testing.T, steps []ledger.Transition, from int) int {
	t.Helper()
	for i, step := range steps {
		want := ledger.Transition{Grant: ledger.GrantID(fmt.Sprintf("g-%05d", from+i/2)), From: ledger.Released,
			To: ledger.Reserved}
		if i%2 == 1 {
			want.From, want.To = want.To, want.From
		}
		if step.Grant != want.Grant || step.From != want.From || step.To != want.To {
			t.Fatalf("step %d is %+v, want %+v", i, step, want)
		}
	}
	return from + len(steps)/2
}

// all chooses every transition.
func all(ledger.Transition) bool { return true }

// A subscriber is woken for what it wants alone.
func TestSubscribersChoose(t *testing.T) {
	t.Parallel()
	b := newBench(t, boot)
	sub := b.Subscribe(func(s ledger.Transition) bool { return s.To == ledger.Released && s.Grant == "g-00001" })
	defer sub.Close()
	if _, resync := sub.Take(); !ready(sub) || !resync {
		t.Fatal("the first Take has to tell to read the grants")
	}
	b.change(t, 0, 1)
	if steps, _ := sub.Take(); ready(sub) || len(steps) > 0 {
		t.Errorf("woken for %v", steps)
	}
	b.change(t, 1, 2)
	if steps, resync := sub.Take(); !ready(sub) || resync || len(steps) != 1 || steps[0].Grant != "g-00001" {
		t.Errorf("%v, resync %v", steps, resync)
	}
}

// ready reports whether there is something to take.
func ready(s *store.Subscription) bool {
	select {
	case <-s.Ready():
		return true
	default:
		return false
	}
}

// If a subscriber does not read for a while, changes go on, and it gets a note to read all grants. From then on it
// misses nothing.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	b := newBench(t, boot)
	b.change(t, 0, 1)
	sub, slow := b.Subscribe(all), b.Subscribe(all)
	defer slow.Close()
	if steps, resync := sub.Take(); !ready(sub) || len(steps) > 0 || !resync {
		t.Errorf("at first: %v, resync %v", steps, resync)
	}
	for at := 1; at < 5000; at += 100 {
		b.change(t, at, 100)
		steps, resync := sub.Take()
		if !ready(sub) || resync || len(steps) != 200 {
			t.Fatalf("%d steps, resync %v", len(steps), resync)
		}
		inOrder(t, steps, at)
	}
	steps, resync := slow.Take()
	if !ready(slow) || !resync || len(steps) >= 5000 {
		t.Errorf("slow: %d steps, resync %v", len(steps), resync)
	}
	b.change(t, 6000, 3)
	if steps, resync := slow.Take(); resync || inOrder(t, steps, 6000) != 6003 {
		t.Errorf("after a resync: %d steps, resync %v", len(steps), resync)
	}
	sub.Close()
	_, _ = sub.Take()
	_ = ready(sub)
	b.change(t, 7000, 1)
	if steps, _ := sub.Take(); len(steps) > 0 || ready(sub) {
		t.Errorf("after Close: %v", steps)
	}
}

// A subscriber that reads the grants at each resync, and applies what comes after it, knows at the end what there is.
func TestSubscribersFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, boot)
		sub := b.Subscribe(all)
		there := map[ledger.GrantID]bool{}
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-sub.Ready():
				}
				steps, resync := sub.Take()
				if resync {
					clear(there)
					for _, g := range b.Grants() {
						there[g.ID] = true
					}
				}
				for _, step := range steps {
					if there[step.Grant] = true; step.To == ledger.Released {
						delete(there, step.Grant)
					}
				}
			}
		}()
		for i := range 9 {
			b.change(t, i*1000, 900)
			if err := b.UpdateLater(func(l *ledger.Ledger) error {
				return l.Restore(ledger.Reservation{ID: ledger.GrantID(fmt.Sprint(i))}, nil)
			}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		close(stop)
		synctest.Wait()
		if len(there) != 9 {
			t.Errorf("%d grants, want 9", len(there))
		}
	})
}
