// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// heard collects the events on pods and the evictions.
type heard struct {
	mu      sync.Mutex
	told    []string
	evicted []string
}

func (h *heard) listen(r *Runtime) {
	r.Notify.ToPod = func(_ context.Context, ref sharing.ContainerRef, reason, message string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.told = append(h.told, ref.Pod+" "+reason+" "+message)
	}
	r.Notify.Evictor = func(_ context.Context, ref sharing.ContainerRef) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.evicted = append(h.evicted, ref.Pod)
		return nil
	}
}

// count returns how many events begin with the text, and how many evictions of the pod there were.
func (h *heard) count(begin, pod string) (told, evicted int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.told {
		if strings.HasPrefix(t, begin) {
			told++
		}
	}
	for _, e := range h.evicted {
		if e == pod {
			evicted++
		}
	}
	return told, evicted
}

func runs(c *container) bool {
	populated, err := c.group.Populated()
	return err == nil && populated
}

// faultBench is a node with two pods on different GPUs: hit, with a container that runs, and spared.
func faultBench(t *testing.T, h config.Health) (b *bench, ears *heard, hit *container, gpu sharing.GPURef) {
	t.Helper()
	b = newPodBench(t)
	b.opt.Pool.Health = h
	b.Runtime = New(b.opt)
	ears = &heard{}
	ears.listen(b.Runtime)
	if err := b.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.attach()
	b.loops()
	hit = b.run(b.app("hit", "gpu:1"))
	b.inject(b.app("spared", "gpu:1"))
	for _, g := range b.State(t.Context()).Grants {
		if g.Owner.PodName == "hit" {
			gpu = g.Placement[0].GPU
		}
	}
	return b, ears, hit, gpu
}

// A fault tells exactly the pods on the GPU, once, and its end too; a driver that goes away in between says nothing.
func TestAFaultIsToldToItsPods(t *testing.T) {
	b, ears, hit, gpu := faultBench(t, config.Health{})
	b.SetHealth(gpu.UUID, sharing.HealthSuspect, "hangs")
	b.SetHealth(gpu.UUID, sharing.HealthLost, "XID 79: fell off the bus")
	b.eventually("the word to the pod", func() bool { n, _ := ears.count("hit GPUUnhealthy", ""); return n == 1 })
	b.Detach("no driver")
	time.Sleep(150 * time.Millisecond)
	b.attach()
	b.SetHealth(gpu.UUID, sharing.HealthOK, "")
	b.eventually("the end of the fault", func() bool { n, _ := ears.count("hit GPURecovered", ""); return n == 1 })
	if n, _ := ears.count("hit GPUUnhealthy", ""); n != 1 {
		t.Errorf("notified %d times: %v", n, ears.told)
	}
	if n, e := ears.count("spared", "hit"); n != 0 || e != 0 || !runs(hit) {
		t.Errorf("the spared pod was notified %d times, %d evictions, the process lives: %v", n, e, runs(hit))
	}
}

// Where the pool says so, what runs is asked to end and its pod evicted after the grace; others go on.
func TestAFaultEvicts(t *testing.T) {
	b, ears, hit, gpu := faultBench(t, config.Health{OnFault: config.FaultEvict, Grace: 200 * time.Millisecond})
	b.SetHealth(gpu.UUID, sharing.HealthUnhealthy, "XID 95")
	b.eventually("SIGTERM", func() bool { return !runs(hit) })
	b.eventually("the eviction", func() bool { _, e := ears.count("", "hit"); return e == 1 })
	if _, e := ears.count("", "spared"); e != 0 {
		t.Error("a pod on another GPU was evicted")
	}
}

// A node that is leaving grants nothing new, and its pods get one event.
func TestALeavingNode(t *testing.T) {
	b, ears, _, _ := faultBench(t, config.Health{})
	for range 2 {
		b.SetLeaving(t.Context(), "the node is going")
	}
	for _, pod := range []string{"hit", "spared"} {
		if n, _ := ears.count(pod+" NodeTerminating", ""); n != 1 {
			t.Errorf("%s was notified %d times", pod, n)
		}
	}
	if _, err := b.Inject(t.Context(), b.app("late", "gpu:1"), b.newID()); err == nil ||
		!strings.Contains(fmt.Sprint(err), "going") {
		t.Errorf("a grant on a node that leaves: %v", err)
	}
	b.SetLeaving(t.Context(), "")
	b.inject(b.app("late", "gpu:1"))
}
