// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// What the books take for one pod on 200 nodes of 8 GPUs: every node is asked whether it fits and how well, and the best is
// reserved. A full cluster is begun anew.
func BenchmarkPod(b *testing.B) {
	const nodes = 200
	names := make([]string, nodes)
	for i := range names {
		names[i] = nodeName(i)
	}
	begin := func() *scheduler.Books {
		books := booksOf(nodes, 8)
		for _, name := range names {
			books.Heartbeat(name, noon().Add(time.Second), 24*time.Hour, noon())
		}
		return books
	}
	books, n := begin(), 0
	for b.Loop() {
		n++
		w := want(b, podOf(fmt.Sprint("p", n), map[string]string{sharing.ResourcePercent: "25"}))
		books.Learn(w)
		best, most := "", int64(0)
		for _, name := range names {
			if books.Fit(w, name, noon()).Reason != scheduler.Fits {
				continue
			}
			if score := books.Score(w, name, machine().CPU, noon()); best == "" || score > most {
				best, most = name, score
			}
		}
		if best == "" {
			books = begin()
			continue
		}
		books.Terms(w, best, machine().CPU, noon())
		if _, err := books.Reserve(w, best, noon()); err != nil {
			b.Fatal(err)
		}
	}
}
