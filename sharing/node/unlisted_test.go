// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/meter"
)

func (b *bench) unlistedTold() string {
	b.t.Helper()
	b.changed.announce() // a new picture
	for _, w := range b.State(b.t.Context()).Warnings {
		if strings.Contains(w, "unattributed memory") {
			return w
		}
	}
	return ""
}

// Memory in use that belongs to no process is reported once after two samples show it, with the grants whose programs
// may use it. The report lasts as long as the memory, and is absent where the amount is unknown.
func TestUnlistedMemoryIsTold(t *testing.T) {
	b := newBench(t)
	b.start()
	p := b.tenant()
	a := b.activate(p, "", gib(4))
	gpu := a.Own[0].Ref()
	look := func(nobodys sharing.Bytes, uses ...gpudriver.ProcessUse) string {
		b.driver.put(gpu, uses)
		b.driver.nobodys = map[sharing.GPURef]sharing.Bytes{gpu: nobodys}
		return b.unlistedTold()
	}
	if got := look(0, gibs(p, 4)); got != "" {
		t.Errorf("all is some process's: %q", got)
	}
	if got := look(3*sharing.GiB, gibs(p, 4)); got != "" {
		t.Errorf("at the first look, at which a process may just have freed it: %q", got)
	}
	if got := look(2*sharing.GiB, gibs(p, 4)); !strings.Contains(got, " has 2GiB of unattributed memory") ||
		!strings.Contains(got, "It is managed memory") || strings.Contains(got, "held by") ||
		!strings.Contains(got, string(a.ID)) {
		t.Errorf("at the second: %q", got)
	}
	if got := look(2*sharing.GiB, gpudriver.ProcessUse{PID: p.PID, Used: 4 * sharing.GiB}); got != "" {
		t.Errorf("while the driver does not know what a process has: %q", got)
	}
	look(2 * sharing.GiB)
	p.end()
	b.eventually("the grant's end", func() bool { return len(b.State(t.Context()).Grants) == 0 })
	if got := look(2 * sharing.GiB); !strings.Contains(got, "No grant is on the GPU") {
		t.Errorf("after the grant's end: %q", got)
	}
	slack := contextsize.Slack(0)
	look(slack)
	if got := look(slack); got != "" {
		t.Errorf("what a driver has for itself: %q", got)
	}
}

// A driver holds some memory for itself per context. It is reported only if it is more than that for the processes on
// the GPU.
func TestUnlistedMemoryOfContexts(t *testing.T) {
	b := newBench(t)
	b.start()
	p := b.tenant()
	gpu := b.activate(p, "", gib(4)).Own[0].Ref()
	var many []gpudriver.ProcessUse
	b.driver.kept = map[int]bool{} // they need not live
	for pid := 1_000_000; len(many) < 50; pid++ {
		b.driver.kept[pid] = true
		many = append(many, gpudriver.ProcessUse{PID: pid, Known: true})
	}
	for name, c := range map[string]struct {
		uses  []gpudriver.ProcessUse
		bytes sharing.Bytes
		told  bool
	}{
		"of 50 processes": {many, contextsize.Slack(50), false},
		"of one process":  {many[:1], contextsize.Slack(50), true},
		"beyond":          {many, contextsize.Slack(50) + sharing.MiB, true},
	} {
		b.driver.put(gpu, c.uses)
		b.driver.nobodys = map[sharing.GPURef]sharing.Bytes{gpu: 0}
		b.unlistedTold()
		b.driver.nobodys[gpu] = c.bytes
		b.unlistedTold()
		if got := b.unlistedTold(); (got != "") != c.told {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// An admin gets one event for each time.
func TestUnlistedMemoryIsAnEvent(t *testing.T) {
	b := newBench(t)
	b.start()
	var told []string
	b.Notify.ToNode = func(_ context.Context, reason, message string) { told = append(told, reason+": "+message) }
	gpu := b.gpus[0].Ref()
	m := newMeter(b.Runtime)
	for _, step := range []struct {
		nobodys sharing.Bytes
		silent  bool
		want    int
	}{{sharing.GiB, false, 0}, {sharing.GiB, false, 1}, {sharing.GiB, false, 1}, {sharing.GiB, true, 1},
		{sharing.GiB, false, 1}, {sharing.GiB, false, 1}, {0, false, 1}, {sharing.GiB, false, 1},
		{sharing.GiB, false, 2}} {
		b.driver.nobodys, b.driver.silent = map[sharing.GPURef]sharing.Bytes{gpu: step.nobodys},
			map[sharing.GPURef]bool{gpu: step.silent}
		b.changed.announce()
		m.Measure(t.Context())
		if len(told) != step.want {
			t.Fatalf("reported %q, want %d", told, step.want)
		}
	}
	if !strings.HasPrefix(told[0], meter.UnattributedReason+": GPU 0 has 1GiB of unattributed memory") {
		t.Errorf("reported %q", told[0])
	}
}
