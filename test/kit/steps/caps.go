// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

const (
	limit = 4 * gib
	over  = "6GiB"
)

// charged are the families of gpuload that libkerf charges when they allocate.
var charged = []string{"linear", "async", "pool", "graph", "vmm", "pitched", "array", "managed", "sparse", "mipmap",
	"batch"}

// overheads are families that libkerf does not reject by itself. It learns their memory from the driver, or another
// process or API made it. Their numbers are facts without a verdict.
var overheads = []string{"context", "module", "library", "heap", "stack", "external"}

// caps lets programs take more than their cap, with a region and, if possible, in grants.
func caps(ctx context.Context, b *bench.Bench) error {
	r, err := b.NewUsageFile(limit)
	if err != nil {
		return err
	}
	defer r.Close()
	peak, err := watchPeak(ctx, b)
	if err != nil {
		return err
	}
	defer peak.stop()
	region := func() bench.Way { return r.Way(b) }
	if err := families(ctx, b, "cap-rejects", region, charged); err != nil {
		return err
	}
	if err := peaks(ctx, b, peak, "one program with libkerf", 1); err != nil {
		return err
	}
	if err := contents(ctx, b, region); err != nil {
		return err
	}
	if err := together(ctx, b, peak, region(), 8); err != nil { // the region does not count contexts
		return err
	}
	return inGrants(ctx, b, peak)
}

// inGrants does the same in grants, where contexts count. Without an agent it records why not.
func inGrants(ctx context.Context, b *bench.Bench, peak *peak) error {
	if why := b.Machine.Lacks[core.NeedAgent]; why != "" {
		b.Fact("grants", "not possible here: %s", why)
		b.Add(core.Impossible("driver-rejects", why))
		return nil
	}
	a, err := b.StartAgent(ctx, capsPool)
	if err != nil {
		b.Fact("grants", "not possible here: %v", err)
		b.Add(core.Impossible("driver-rejects", err.Error()))
		return context.Cause(ctx)
	}
	defer a.Stop()
	levels, err := a.Levels(ctx)
	if err != nil {
		return err
	}
	b.Fact("levels of shares", "%v", levels)
	if err := together(ctx, b, peak, a.Grant("grant", "--memory", "4GiB"), 1); err != nil {
		return err
	}
	claim, apis := "cap-rejects", charged
	if slices.Contains(levels, "driver") {
		claim, apis = "driver-rejects", slices.DeleteFunc(slices.Clone(charged),
			func(api string) bool { return api == "managed" || api == "batch" })
	} else {
		b.Add(core.Impossible("driver-rejects", "the driver has no memory limits of cgroups"))
	}
	grant := func() bench.Way { return a.Grant("grant", "--memory", "4GiB") }
	return families(ctx, b, claim, grant, append(slices.Clone(apis), overheads...))
}

// contents fills memory by kernels up to the cap, checks it, frees it and takes it again.
func contents(ctx context.Context, b *bench.Bench, way func() bench.Way) error {
	for _, api := range []string{"linear", "async", "vmm", "pitched", "managed"} {
		var got struct {
			Allocated uint64 `json:"allocated_bytes"`
			Bad       uint64 `json:"bad_words"`
			Total     uint64 `json:"total_bytes"`
			Kernels   bool
			Error     string
			Again     string
		}
		if err := b.Run(ctx, way(), &got, "fill", "--api", api, "--alloc", over, "--step", "256MiB"); err != nil {
			return err
		}
		b.Fact("filled by "+api, "%.2f GiB, then %q; %d wrong words", float64(got.Allocated)/float64(gib), got.Error,
			got.Bad)
		b.Add(core.Is("cap-returns", got.Again == "", "half of the cap again by %s: %s", api,
			cmp.Or(got.Again, "succeeded")))
		if !got.Kernels {
			b.Add(core.Impossible("data-intact", b.Machine.Lacks[core.NeedKernels]))
			continue
		}
		b.Add(core.Is("data-intact", got.Bad == 0 && got.Allocated > 0, "%s: %d wrong words in %.1f GiB", api, got.Bad,
			float64(got.Allocated)/float64(gib)))
	}
	return nil
}

// families asks for more than the cap in each way. What does not work without Kerf either has no verdict.
func families(ctx context.Context, b *bench.Bench, claim string, way func() bench.Way, apis []string) error {
	for _, api := range apis {
		args := []string{"--api", api, "--alloc", over, "--step", "256MiB"}
		w := way()
		l, err := first(ctx, b, w, args...)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		text := fmt.Sprintf("%.2f GiB, then %q", float64(l.Allocated)/float64(gib), l.Error)
		if err != nil {
			text = err.Error()
		}
		b.Fact("6 GiB by "+api+", "+w.Name, "%s", text)
		if slices.Contains(overheads, api) {
			continue
		}
		held := err == nil && l.Error == outOfMemory && l.Allocated <= limit
		if !held && !worksNatively(ctx, b, args) {
			continue
		}
		b.Add(core.Is(claim, held, "%s (%s): %s", api, w.Name, text),
			core.Is("cap-size", l.Total == limit, "%s (%s): %d bytes", api, w.Name, l.Total))
	}
	return nil
}

// worksNatively records whether a way to allocate works without libkerf.
func worksNatively(ctx context.Context, b *bench.Bench, args []string) bool {
	l, err := first(ctx, b, b.Native(), args...)
	b.Fact("the same without libkerf", "%.2f GiB, then %q %v", float64(l.Allocated)/float64(gib), l.Error, err)
	return err == nil && l.Error == ""
}

// first is what the first process of gpuload got.
func first(ctx context.Context, b *bench.Bench, w bench.Way, args ...string) (loaded, error) {
	list, _, err := load(ctx, b, w, args...)
	if err != nil {
		return loaded{}, err
	}
	return list[0], nil
}

// together lets eight processes of one grant or region ask for twice the cap.
func together(ctx context.Context, b *bench.Bench, peak *peak, w bench.Way, contexts uint64) error {
	const processes = 8
	peak.reset()
	sum, rejected, err := atOnce(ctx, b, w, processes)
	if err != nil {
		return err
	}
	b.Add(core.Is("cap-shared", sum <= limit && rejected > 0, "%d processes (%s): %.2f GiB together, %d rejected",
		processes, w.Name, float64(sum)/float64(gib), rejected))
	return peaks(ctx, b, peak, "eight processes, "+w.Name, contexts)
}

// atOnce lets processes ask for 1 GiB each. All of them hold what they got until the last one has what it can get.
func atOnce(ctx context.Context, b *bench.Bench, w bench.Way, processes int) (sum uint64, rejected int, err error) {
	p, err := b.Start(w, b.Program("kitload"), "grow", "--count", fmt.Sprint(processes), "--step", "128MiB", "--alloc",
		"1GiB")
	if err != nil {
		return 0, 0, err
	}
	defer p.End()
	held := map[int]uint64{}
	for ready := 0; ready < processes; {
		var l grown
		if err := p.Line(ctx, &l); err != nil {
			return 0, 0, err
		}
		if l.Failed != "" { // it got no context
			ready, rejected = ready+1, rejected+1
			continue
		}
		held[l.PID] = l.Bytes
		if l.Error == outOfMemory {
			rejected++
		}
		if l.Error != "" || l.Bytes == gib {
			ready++
		}
	}
	for _, bytes := range held {
		sum += bytes
	}
	return sum, rejected, nil
}

// peaks compares what the driver showed with the cap and so many contexts.
func peaks(ctx context.Context, b *bench.Bench, p *peak, what string, contexts uint64) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	highest := p.reset()
	b.Add(core.AtMost("cap-peak", what, float64(highest)/float64(mib), float64(limit+contexts*p.context)/float64(mib),
		"MiB"))
	return nil
}

// peak samples the GPU's used memory until it is stopped.
type peak struct {
	driver  *bench.Driver
	context uint64
	end     context.CancelFunc
	done    chan struct{}

	mu            sync.Mutex
	base, highest uint64
}

// watchPeak measures a context first. Other programs on the GPU make the numbers larger.
func watchPeak(ctx context.Context, b *bench.Bench) (*peak, error) {
	d, err := b.OpenDriver(ctx)
	if err != nil {
		return nil, err
	}
	p := &peak{driver: d, done: make(chan struct{})}
	if p.base, err = d.Settled(ctx); err != nil {
		return nil, err
	}
	if p.context, err = contextSize(ctx, b, d); err != nil {
		return nil, err
	}
	b.Fact("context", "%.1f MiB", float64(p.context)/float64(mib))
	watching, end := context.WithCancel(ctx)
	p.end = end
	go p.watch(watching)
	return p, nil
}

// watch reads as often as once in 5 ms.
func (p *peak) watch(ctx context.Context) {
	defer close(p.done)
	for bench.Wait(ctx, 5*time.Millisecond) == nil {
		if used, _, err := p.driver.Used(ctx); err == nil {
			p.mu.Lock()
			p.highest = max(p.highest, used-min(used, p.base))
			p.mu.Unlock()
		}
	}
}

// reset returns the highest value since the last call.
func (p *peak) reset() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.highest
	p.highest = 0
	return was
}

func (p *peak) stop() {
	p.end()
	<-p.done
	_ = p.driver.Close()
}

// contextSize is what the GPU uses more with a process that has a context and the kit's module.
func contextSize(ctx context.Context, b *bench.Bench, d *bench.Driver) (uint64, error) {
	before, err := d.Settled(ctx)
	if err != nil {
		return 0, err
	}
	p, err := b.Start(b.Native(), b.Program("kitload"), "stages", "--count", "1")
	if err != nil {
		return 0, err
	}
	defer p.End()
	for range 2 {
		var at stage
		if err := p.Line(ctx, &at); err != nil {
			return 0, err
		}
		if at.Failed != "" {
			return 0, fmt.Errorf("kitload stages: %s in %s", at.Failed, at.Call)
		}
		if at.Stage == "context" {
			p.Next()
		}
	}
	with, _, err := d.Used(ctx)
	return with - min(with, before), err
}
