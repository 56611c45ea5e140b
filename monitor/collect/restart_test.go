// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/sharing"
)

// TestAContainerRestarts gives a grant to the next instance of its container. This has another cgroup, and its program
// has the PID of the one before. The usage of the grant continues, no process counts as unmanaged, and while nothing
// runs, nothing is used.
func TestAContainerRestarts(t *testing.T) {
	f := &fakeNode{grants: map[string]Grant{}, dirs: map[int]string{}}
	now := time.Unix(1_000_000, 0)
	c, h := f.collector(&bytes.Buffer{})
	c.opts.Now = func() time.Time { return now }
	at := attribution.Place{Grant: "a", GPU: sharing.GPURef{UUID: "GPU-0"}}
	instance := func(cgroup string, runs bool) {
		g := grant("a", "GPU-0")
		g.Attachment.Cgroup = cgroup
		f.grants = map[string]Grant{"a": g}
		if !runs {
			f.on()
			f.ended = []int{7}
			delete(f.dirs, 7)
			return
		}
		f.on(7)
		f.dirs[7] = cgroup
		f.readings[0].Device.Timed = true
		f.readings[0].Device.Processes[0].SM = 0.5
	}
	var last attribution.Total
	for i, step := range []struct {
		cgroup    string
		runs      bool
		processes int
	}{
		{"/cg/first", true, 1}, {"/cg/first", true, 1}, {"", false, 0}, {"/cg/second", true, 1},
		{"/cg/second", true, 1},
	} {
		instance(step.cgroup, step.runs)
		now = now.Add(time.Second)
		c.Cycle(t.Context())
		got := h.Latest().GPUs[0]
		if n := got.Use.Unmanaged.Processes + got.Use.Rest.Processes; n != 0 ||
			got.Use.Grants[0].Processes != step.processes {
			t.Errorf("look %d: %d processes of the grant, %d of others", i, got.Use.Grants[0].Processes, n)
		}
		total := got.Totals[at]
		if total.Active < last.Active || total.Watched < last.Watched {
			t.Errorf("look %d: %+v, before %+v", i, total, last)
		}
		last = total
	}
	if last.Active < 1500*time.Millisecond || last.Watched <= last.Active {
		t.Errorf("the grant was watched for %s, and worked for %s", last.Watched, last.Active)
	}
}
