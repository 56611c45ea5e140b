// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import "testing"

// What the runtime itself costs: real cgroups, a real record with its fsyncs and a real process, a driver
// that answers at once.
func BenchmarkLease(b *testing.B) {
	bench := newBench(b)
	bench.start()
	for b.Loop() {
		b.StopTimer()
		p := bench.tenant()
		b.StartTimer()
		id, err := bench.Claim(b.Context(), p.Peer, "", gib(1))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := bench.Arm(b.Context(), p.Peer, id); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		p.end()
		bench.eventually("the lease ends", func() bool { _, ok := bench.Grant(id); return !ok })
		b.StartTimer()
	}
}

func BenchmarkState(b *testing.B) {
	bench := newBench(b)
	bench.start()
	for range 20 {
		bench.lease(bench.tenant(), "", gib(1))
	}
	for b.Loop() {
		bench.changed.announce() // no picture is taken twice
		if s := bench.State(b.Context()); len(s.Grants) != 20 {
			b.Fatal(len(s.Grants))
		}
	}
}
