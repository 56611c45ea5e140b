// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package work_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing/node/work"
)

// A key waits once. Keys that come together are taken together, and no pass begins within the gap after another one.
func TestQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, start := work.New[string](), time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		done := make(chan struct{})
		q.Add("a", "b", "a")
		go func() {
			defer close(done)
			q.Run(ctx, 20*time.Millisecond, func(keys []string) {
				got = append(got, fmt.Sprint(time.Since(start).Milliseconds(), keys))
				if keys[0] == "again" {
					q.After("again", 500*time.Millisecond)
				}
			})
		}()
		synctest.Wait()
		q.Add("c") // within the gap
		q.After("later", 100*time.Millisecond)
		q.After("later", 10*time.Millisecond) // it is to be added already
		q.After("early", time.Hour)
		time.Sleep(200 * time.Millisecond)
		q.Add("again", "early")
		q.Add()
		time.Sleep(900 * time.Millisecond)
		cancel()
		<-done
		want := []string{"0 [a b]", "20 [c]", "100 [later]", "200 [again early]", "700 [again]"}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
}

// A key that could not be dealt with comes back until it is, and Add makes it come at once.
func TestRetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, start := work.New[int](), time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var at []int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			q.Run(ctx, time.Millisecond, func(keys []int) {
				for _, k := range keys {
					at = append(at, time.Since(start).Milliseconds())
					q.After(k, 500*time.Millisecond)
				}
			})
		}()
		q.Add(7)
		time.Sleep(1200 * time.Millisecond)
		q.Add(7)
		time.Sleep(600 * time.Millisecond)
		cancel()
		<-done
		if d := cmp.Diff([]int64{0, 500, 1000, 1200, 1700}, at); d != "" {
			t.Error(d)
		}
		time.Sleep(time.Second)
		if left := q.Take(); len(left) > 0 {
			t.Errorf("%v after the end", left)
		}
	})
}
