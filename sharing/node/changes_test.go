// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"testing/synctest"
	"time"
)

// A change wakes who waits at once, many soon after each other wake them once more, and never is the last one missed.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChanges()
		woken := func(ch <-chan struct{}) bool {
			select {
			case <-ch:
				return true
			default:
				return false
			}
		}
		first := c.wait()
		c.announce()
		if !woken(first) {
			t.Error("the first change wakes no waiter")
		}
		second := c.wait()
		for range 10 {
			time.Sleep(time.Millisecond)
			c.announce()
		}
		if woken(second) || c.seen() != 11 {
			t.Errorf("woken too soon, or %d changes seen", c.seen())
		}
		time.Sleep(changeGap - 10*time.Millisecond)
		synctest.Wait()
		third := c.wait()
		if !woken(second) || woken(third) {
			t.Error("ten changes wake not once")
		}
		time.Sleep(changeGap)
		synctest.Wait()
		if woken(third) {
			t.Error("woken without a change")
		}
		c.announce()
		if !woken(third) {
			t.Error("a change after a while wakes no waiter at once")
		}
	})
}
