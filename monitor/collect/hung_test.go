// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// hungNode has GPUs of which some do not answer.
type hungNode struct {
	fakeNode
	hung func(index int) bool
	took time.Duration // of each that answers
}

func (h *hungNode) Read(ctx context.Context, g Info) Reading {
	if h.hung(g.Index) {
		<-ctx.Done()
		return Reading{Err: ctx.Err()}
	}
	time.Sleep(h.took)
	return h.fakeNode.Read(ctx, g)
}

// TestHungGPUs: GPUs that hang delay the others by only a moment, and slow ones are read in parallel.
func TestHungGPUs(t *testing.T) {
	cases := map[string]struct {
		hung       func(int) bool
		each, most time.Duration
	}{
		"all answer":     {func(int) bool { return false }, time.Millisecond, 10 * time.Millisecond},
		"all are slow":   {func(int) bool { return false }, 100 * time.Millisecond, 150 * time.Millisecond},
		"one hangs":      {func(i int) bool { return i == 0 }, time.Millisecond, readDeadline},
		"all but one do": {func(i int) bool { return i != 7 }, time.Millisecond, readDeadline},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &hungNode{hung: c.hung, took: c.each}
				for i := range 8 {
					n.readings = append(n.readings,
						Reading{Info: Info{UUID: sharing.GPUID(fmt.Sprint("GPU-", i)), Index: i}})
				}
				collector, hub := n.collector(&bytes.Buffer{})
				collector.opts.Source = n
				began := time.Now()
				collector.Cycle(t.Context())
				if took := time.Since(began); took > c.most {
					t.Errorf("it took %v, want %v", took, c.most)
				}
				for i, g := range hub.Latest().GPUs {
					if g.Info.Index != i || (g.Err != nil) != c.hung(i) {
						t.Errorf("gpu %d at place %d: %v", g.Info.Index, i, g.Err)
					}
				}
			})
		})
	}
}
