// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

// What the runtime itself costs: real cgroups, a real record with its fsyncs and a real process, a driver
// that answers at once.
func BenchmarkAttachment(b *testing.B) {
	bench := newBench(b)
	bench.start()
	for b.Loop() {
		b.StopTimer()
		p := bench.tenant()
		b.StartTimer()
		id, err := bench.Reserve(b.Context(), p.Peer, "", gib(1))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := bench.Activate(b.Context(), p.Peer, id); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		p.end()
		bench.eventually("the attachment ends", func() bool { _, ok := bench.Grant(id); return !ok })
		b.StartTimer()
	}
}

// One check of the guard: 8 GPUs with 200 processes of 40 grants. All is real except the driver, which answers at once.
func BenchmarkGuard(b *testing.B) {
	bench := newBench(b)
	bench.opt.Pool = killing
	for i := len(bench.gpus); i < 8; i++ {
		gpu := bench.gpus[0]
		gpu.UUID, gpu.Index, gpu.Minor = sharing.GPUID(fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i)), i, i
		bench.gpus = append(bench.gpus, gpu)
	}
	g := &guarded{bench: bench, seen: &seen{}}
	g.restartAgent()
	var all []*tenant
	for i := range 40 {
		req := gib(4)
		req.UUIDs = []sharing.GPUID{bench.gpus[i%8].UUID}
		for n := range 5 {
			p := bench.tenant()
			all = append(all, p)
			use := gpudriver.ProcessUse{PID: p.PID, Used: sharing.GiB / 2, Known: true}
			if n == 0 {
				bench.activate(p, "", req)
			} else if err := bench.joins(p, len(all)-1-n, all); err != nil {
				b.Fatal(err)
			}
			bench.driver.put(sharing.GPURef{UUID: req.UUIDs[0]},
				append(bench.driver.on[sharing.GPURef{UUID: req.UUIDs[0]}], use))
		}
	}
	for b.Loop() {
		g.looks(1)
	}
	b.StopTimer()
	for _, p := range all {
		p.end()
	}
	bench.Reconcile(b.Context())
}

// joins puts a process into the cgroup of another.
func (b *bench) joins(p *tenant, of int, all []*tenant) error {
	dir, err := b.opt.Cgroups.OfProcess(all[of].PID)
	if err != nil {
		return err
	}
	group, err := b.opt.Cgroups.Open(dir, 0)
	if err != nil {
		return err
	}
	return group.Add(p.PID)
}

func BenchmarkState(b *testing.B) {
	bench := newBench(b)
	bench.start()
	for range 20 {
		bench.activate(bench.tenant(), "", gib(1))
	}
	for b.Loop() {
		bench.changed.announce() // no picture is taken twice
		if s := bench.State(b.Context()); len(s.Grants) != 20 {
			b.Fatal(len(s.Grants))
		}
	}
}

// One container of a pod from its injection to its attachment, with the two hooks that it has; nothing else starts.
func BenchmarkContainer(b *testing.B) {
	bench := newPodBench(b)
	bench.start()
	ask := bench.app("p", "gpu-memory-gib:1")
	for b.Loop() {
		b.StopTimer()
		c := (&container{b: bench, ask: ask, id: bench.newID()}).make()
		b.StartTimer()
		var err error
		if c.in, err = bench.Inject(b.Context(), ask, c.id); err != nil {
			b.Fatal(err)
		}
		if err := c.hooks(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		c.remove()
		bench.eventually("the attachment ends", func() bool { return bench.grant(ask).Active == nil })
		b.StartTimer()
	}
}

// All containers of a full node start at once: how long each waits for its injection and its hooks.
func BenchmarkContainersAtOnce(b *testing.B) {
	const pods = 110
	bench := newPodBench(b)
	bench.start()
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		all := make([]*container, pods)
		for i := range all {
			all[i] = (&container{b: bench, ask: bench.app(fmt.Sprintf("p%d", i), "gpu-memory-gib:1"),
				id: bench.newID()}).make()
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		ctx := context.WithoutCancel(b.Context())
		b.StartTimer()
		for _, c := range all {
			wg.Go(func() {
				start := time.Now()
				var err error
				c.in, err = bench.Inject(ctx, c.ask, c.id)
				for _, call := range c.calls() {
					if err == nil {
						err = bench.ActivateContainer(ctx, call)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				if took = append(took, time.Since(start)); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		b.StopTimer()
		for _, c := range all {
			c.remove()
			bench.PodRemoved(c.ask.Ref.PodUID)
		}
		bench.eventually("all end", func() bool { return len(bench.PodGrants()) == 0 })
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
}

// What a container runtime with many containers tells when the agent comes back.
func BenchmarkSyncRuntime(b *testing.B) {
	bench := newPodBench(b)
	bench.still()
	var seen []sharing.Seen
	for i := range 110 {
		seen = append(seen, bench.run(bench.app(fmt.Sprintf("p%d", i), "gpu-memory-gib:1")).seen())
	}
	for b.Loop() {
		if err := bench.SyncRuntime(b.Context(), seen); err != nil {
			b.Fatal(err)
		}
	}
}
