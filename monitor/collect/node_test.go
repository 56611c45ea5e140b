// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/sharing"
)

// TestSharersOfOneGPU has two and seven pods of two containers each on one GPU, in containers that have cgroups below.
// Each container has its own numbers, and with the rest they are the GPU's.
func TestSharersOfOneGPU(t *testing.T) {
	for _, pods := range []int{2, 7} {
		t.Run(fmt.Sprint(pods), func(t *testing.T) {
			d := attribution.Device{Memory: attribution.Known(80 * sharing.GiB),
				SM: attribution.Known(attribution.Ratio(0.9)), Listed: true, Timed: true}
			f := &fakeNode{grants: map[string]Grant{}, dirs: map[int]string{}}
			want := map[string]sharing.Bytes{}
			for p := range pods {
				for c := range 2 {
					id := fmt.Sprintf("p%d-c%d", p, c)
					g := grant(id, "GPU-0")
					g.PodUID = fmt.Sprint("uid-", p)
					f.grants[id] = g
					for k := range 3 {
						pid, memory := 100*p+10*c+k+1, sharing.Bytes(p+c+k+1)*sharing.MiB
						f.dirs[pid] = fmt.Sprintf("%s/below/%d", g.Attachment.Cgroup, k)
						want[id] += memory
						d.Processes = append(d.Processes, attribution.Process{PID: pid, GI: attribution.NoInstance,
							Memory: attribution.Known(memory), SM: 0.01})
					}
				}
			}
			f.readings = []Reading{{Info: Info{UUID: "GPU-0"}, Device: d}}
			c, h := f.collector(&bytes.Buffer{})
			c.Cycle(t.Context())
			use := h.Latest().GPUs[0].Use
			sum := use.Rest.Memory.Value + use.Unmanaged.Memory.Value
			sm := use.Rest.SM.Value + use.Unmanaged.SM.Value
			for _, g := range use.Grants {
				if g.Memory.Value != want[g.Grant] || g.Memory.How != attribution.ByProcess || g.Processes != 3 {
					t.Errorf("%s: %+v, want %d", g.Grant, g.Use, want[g.Grant])
				}
				sum += g.Memory.Value
				sm += g.SM.Value
			}
			if sum != 80*sharing.GiB || sm < 0.9-1e-9 || sm > 0.9+1e-9 || len(use.Grants) != 2*pods {
				t.Errorf("%d grants; the parts are %d bytes, %f of the time", len(use.Grants), sum, sm)
			}
		})
	}
}

// TestAThousandProcesses has them on one GPU: of grants, an unmanaged process and unattributed ones.
func TestAThousandProcesses(t *testing.T) {
	f := &fakeNode{grants: map[string]Grant{}, dirs: map[int]string{}}
	for i := range 7 {
		id := fmt.Sprint("g", i)
		f.grants[id] = grant(id, "GPU-0")
	}
	var pids []int
	for pid := 1; pid <= 1000; pid++ {
		pids = append(pids, pid)
		switch k := pid % 9; k {
		case 7:
			f.dirs[pid] = "/user"
		case 8: // unknown
		default:
			f.dirs[pid] = fmt.Sprintf("/cg/g%d", k)
		}
	}
	f.on(pids...)
	c, h := f.collector(&bytes.Buffer{})
	for range 3 {
		c.Cycle(t.Context())
	}
	use := h.Latest().GPUs[0].Use
	n := use.Unmanaged.Processes + use.Rest.Processes
	for _, g := range use.Grants {
		n += g.Processes
	}
	if n != 1000 || use.Unmanaged.Processes != 111 || use.Rest.Processes != 111 || use.Grants[0].Processes != 111 ||
		use.Grants[1].Processes != 112 {
		t.Errorf("%d processes, %d unmanaged, %d unattributed: %+v", n, use.Unmanaged.Processes, use.Rest.Processes,
			use.Grants[:2])
	}
	if f.asked != 1000+2*111 || len(f.watched) != 1000 {
		t.Errorf("%d looks at cgroups in three cycles, %d held", f.asked, len(f.watched))
	}
}

// TestTheClockJumps an hour back and forth, as it does without a monotonic part.
func TestTheClockJumps(t *testing.T) {
	f := &fakeNode{grants: map[string]Grant{"a": grant("a", "GPU-0")}, dirs: map[int]string{7: "/cg/a"}}
	f.on(7)
	f.readings[0].Device.Timed = true
	f.readings[0].Device.Processes[0].SM = 0.5
	f.readings[0].Fields = map[Field]float64{FieldPower: 100}
	now := time.Unix(1_000_000, 0)
	c, h := f.collector(&bytes.Buffer{})
	c.opts.Now = func() time.Time { return now }
	at := attribution.Place{Grant: "a", GPU: sharing.GPURef{UUID: "GPU-0"}}
	var last attribution.Total
	for _, step := range []time.Duration{0, time.Second, -time.Hour, time.Second, 2 * time.Hour, time.Second} {
		now = now.Add(step)
		c.Cycle(t.Context())
		got := h.Latest().GPUs[0].Totals[at]
		if got.Active < last.Active || got.Watched < last.Watched || got.Energy.Value < last.Energy.Value ||
			got.Idle < 0 {
			t.Errorf("after %s: %+v, before %+v", step, got, last)
		}
		last = got
	}
	if want := 3 * 50.0; float64(last.Energy.Value) != want {
		t.Errorf("%f J in the three seconds that are known, want %f", float64(last.Energy.Value), want)
	}
}

// TestADayOfPods lets 10,000 pods come and go, each for some minutes. What the collector remembers is what lives.
func TestADayOfPods(t *testing.T) {
	const pods, alive = 10_000, 5
	now := time.Unix(1_000_000, 0)
	f := &fakeNode{grants: map[string]Grant{}, dirs: map[int]string{}}
	c, h := f.collector(&bytes.Buffer{})
	c.opts.Now = func() time.Time { return now }
	for i := range pods {
		now = now.Add(24 * time.Hour / pods)
		id := fmt.Sprint("pod-", i)
		f.grants[id] = grant(id, "GPU-0")
		f.dirs[i+1] = "/cg/" + id
		if old := i - alive; old >= 0 {
			delete(f.grants, fmt.Sprint("pod-", old))
			delete(f.dirs, old+1)
		}
		var pids []int
		for pid := max(1, i+2-alive); pid <= i+1; pid++ {
			pids = append(pids, pid)
		}
		f.on(pids...)
		c.Cycle(t.Context())
	}
	s := h.Latest()
	if n := c.tally.Len(); n != alive+2 || len(c.places.known) != alive || len(f.watched) != alive ||
		len(s.GPUs[0].Use.Grants) != alive || len(s.GPUs[0].Totals) != alive+2 || len(c.known) != 0 {
		t.Errorf("%d places, %d processes known and %d held, %d grants, %d totals, %d unmanaged", n,
			len(c.places.known), len(f.watched), len(s.GPUs[0].Use.Grants), len(s.GPUs[0].Totals), len(c.known))
	}
}
