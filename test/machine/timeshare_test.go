// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// busy is what gpuload prints of the GPU time that it got.
type busy struct {
	Launches int64 `json:"launches"`
	GPU      int64 `json:"gpu_ns"`
	Wall     int64 `json:"wall_ns"`
}

// busy waits for the end of a run of gpuload --launch, and returns what it got.
func (r *run) busy() busy {
	r.m.t.Helper()
	if got := r.wait(); got.code != 0 {
		r.m.t.Fatalf("%v: %s", got, r.stderr())
	}
	for _, l := range r.lines(1) {
		if strings.Contains(l, `"launches"`) {
			return decode[busy](r.m.t, l)
		}
	}
	r.m.t.Fatal("no line tells what was launched")
	return busy{}
}

// launching starts a program with a percent of the first GPU that launches as much as it can.
func (m *machine) launching(name string, percent int, how string, hold time.Duration) *run {
	m.t.Helper()
	return m.run(flags(fmt.Sprintf("--memory 1GiB --percent %d --name %s --gpu-uuid %s", percent, name, m.uuid(0))),
		load(fmt.Sprintf("--launch %s --hold %dms --queue 4", how, hold.Milliseconds())))
}

// Ten percent beside ninety get a ninth of what those get, with launches and with graphs. The bounds are for a machine
// that has other things to do.
func TestTimeIsSharedByPercent(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, ", compute: strict")
	for _, how := range []string{"plain --kernel 4ms", "graph --kernel 1ms"} {
		const hold = 3 * time.Second
		ten, ninety := m.launching("ten", 10, how, hold), m.launching("ninety", 90, how, hold)
		ten.granted()
		ninety.granted()
		eventually(t, "what holds it to its percent", func() error {
			g := m.grant("ten")
			if g.Compute.By != "libkerf" || g.Compute.Why != "strict" || len(g.Fragments) != 1 || g.Fragments[0].Time == nil ||
				g.Fragments[0].Time.Launches == 0 || g.Fragments[0].Time.Waited == 0 || g.Fragments[0].Time.Used == nil {
				return fmt.Errorf("%+v", g)
			}
			return nil
		})
		if said := m.kerf("metrics").out; !strings.Contains(said, `kerf_grant_compute_enforced{by="libkerf",grant="ten"} 1`) ||
			!strings.Contains(said, `kerf_grant_launch_wait_seconds_total{grant="ten"`) {
			t.Errorf("metrics: %s", said)
		}
		a, b := ten.busy(), ninety.busy()
		ratio := float64(b.GPU) / float64(max(a.GPU, 1))
		t.Logf("%s: %.2f s and %.2f s, 1 to %.1f", how, float64(a.GPU)/1e9, float64(b.GPU)/1e9, ratio)
		if ratio < 4 || ratio > 20 {
			t.Errorf("%s: %+v and %+v, 1 to %.1f", how, a, b, ratio)
		}
	}
}

// Where idle time is lent, one alone gets all of it, until its owner comes; and the rule changes live.
func TestIdleTimeIsLent(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, "")
	idle := m.run(flags("--memory 1GiB --percent 90 --name idle --gpu-uuid "+m.uuid(0)), load("--hold 1h"))
	idle.granted()
	part := func(b busy) float64 { return float64(b.GPU) / float64(b.Wall) }
	alone := part(m.launching("alone", 10, "plain --kernel 4ms", 2*time.Second).busy())
	if alone < 0.4 {
		t.Errorf("beside one that rests it got %.2f of the GPU", alone)
	}
	idle.end()
	idle.wait()
	// Both want all: the one that was lent to has its tenth again.
	small, owner := m.launching("small", 10, "plain --kernel 4ms", 3*time.Second), m.launching("owner", 90, "plain --kernel 4ms", 3*time.Second)
	a, b := part(small.busy()), part(owner.busy())
	if a > 0.4 || b < 2*a {
		t.Errorf("beside its owner it got %.2f, the owner %.2f", a, b)
	}
	m.agentFlags = []string{"--config", m.write(head + "spec:\n  pools:\n  - {name: default, backends: [driver, libkerf], compute: strict}\n")}
	eventually(t, "the changed rule", func() error {
		strict := m.launching("strict", 10, "plain --kernel 4ms", time.Second)
		strict.granted()
		if got := part(strict.busy()); got > 0.25 {
			return fmt.Errorf("it got %.2f of the GPU", got)
		}
		return nil
	})
	t.Logf("alone %.2f; beside the owner %.2f and %.2f", alone, a, b)
}
