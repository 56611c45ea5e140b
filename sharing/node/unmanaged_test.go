// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/guard"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// TestEachStrangerIsToldOfOnce has unmanaged processes come, stay, and come again while a GPU does not answer.
func TestEachStrangerIsToldOfOnce(t *testing.T) {
	b := newBench(t)
	var told []string
	noted := 0
	b.opt.Audit = func(e audit.Entry) {
		if e.Type == audit.Violation {
			noted++
		}
	}
	b.Runtime = New(b.opt)
	b.Notify.ToNode = func(_ context.Context, reason, message string) { told = append(told, reason+": "+message) }
	if err := b.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.attach()
	gpu := b.gpus[0].Ref()
	m := newMeter(b.Runtime)
	on := func(all ...*tenant) {
		b.driver.put(gpu, nil)
		for _, p := range all {
			b.driver.put(gpu, append(b.driver.on[gpu], gibs(p, 1)))
		}
	}
	look := func() {
		b.changed.announce() // so that the picture is a new one
		m.Measure(t.Context())
	}
	holder := b.tenant()
	req := gib(1)
	req.UUIDs = append(req.UUIDs, gpu.UUID)
	b.activate(holder, "", req)
	first, second, third := b.tenant(), b.tenant(), b.tenant()

	b.Conditions.Set(conditions.Config, "not yet") // no process counts as unmanaged
	on(holder, first)
	look()
	b.Conditions.Set(conditions.Config, "")
	if len(told) != 0 {
		t.Fatalf("reported before it is sure: %q", told)
	}
	look()
	look()
	if len(told) != 1 || !strings.HasPrefix(told[0], guard.UnmanagedReason+": GPU 0") ||
		!strings.Contains(told[0], fmt.Sprintf("has an unmanaged process: PID %d (", first.PID)) ||
		strings.Contains(told[0], fmt.Sprint(holder.PID)) {
		t.Fatalf("reported %q", told)
	}
	on(holder, first, second, third)
	look()
	if len(told) != 2 || !strings.Contains(told[1], "has 2 unmanaged processes: PID ") ||
		strings.Contains(told[1], fmt.Sprintf(" %d (", first.PID)) ||
		!strings.Contains(told[1], fmt.Sprintf("%d (", second.PID)) ||
		!strings.Contains(told[1], fmt.Sprintf("%d (", third.PID)) {
		t.Errorf("two that came together: reported %q", told)
	}
	b.driver.silent = map[sharing.GPURef]bool{gpu: true}
	look()
	b.driver.silent = nil
	look()
	if len(told) != 2 || noted != 2 {
		t.Errorf("reported again after a GPU did not answer: %q, noted %d times", told, noted)
	}
}

// A server of MPS uses memory of its GPU, and is not unmanaged in the cgroup of the agent. Any other process there is.
func TestOwnDaemonsAreNoStrangers(t *testing.T) {
	g := newPreloaded(t, preloading)
	server, other := g.tenant(), g.tenant()
	warned := func() (out []string) {
		g.holds(gibs(server, 1), gibs(other, 1))
		g.bench.changed.announce()
		for _, w := range g.bench.State(t.Context()).Warnings {
			if strings.Contains(w, "is used by processes without a grant") {
				out = append(out, w)
			}
		}
		return out
	}
	both := []int{server.PID, other.PID}
	slices.Sort(both)
	if got := warned(); len(got) != 1 || !strings.Contains(got[0], lifecycle.Numbers(both)) {
		t.Errorf("two unmanaged processes: %q", got)
	}
	g.move(server, DaemonsOf(g.bench.opt.Parent))
	if got := warned(); len(got) != 1 || !strings.HasSuffix(got[0], "pid "+lifecycle.Numbers([]int{other.PID})) {
		t.Errorf("with the agent's own: %q, want %d alone", got, other.PID)
	}
}
