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
		load(fmt.Sprintf("--launch %s --hold %dms --queue 8", how, hold.Milliseconds())))
}

// part is how much of the GPU's time it got.
func (b busy) part() float64 { return float64(b.GPU) / float64(b.Wall) }

// race lets two programs with ten and ninety percent launch at once, and tells what each got.
func (m *machine) race(how string, hold time.Duration) (ten, ninety float64) {
	m.t.Helper()
	a, b := m.launching("ten", 10, how, hold), m.launching("ninety", 90, how, hold)
	ten, ninety = a.busy().part(), b.busy().part()
	m.t.Logf("%s: %.3f and %.3f of the GPU, 1 to %.1f", how, ten, ninety, ninety/max(ten, 0.001))
	eventually(m.t, "both are gone", func() error {
		if n := len(m.state().Grants); n > 0 {
			return fmt.Errorf("%d grants", n)
		}
		return nil
	})
	return ten, ninety
}

// 10% next to 90% get about a ninth of what those get, with launches and with graphs; without a throttle both would get
// the same. A machine that has other things to do gets another try.
func TestTimeIsSharedByPercent(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, ", computePolicy: strict")
	for _, how := range []string{"plain --kernel 4ms", "graph --kernel 1ms"} {
		eventually(t, "one to nine", func() error {
			if ten, ninety := m.race(how, 2*time.Second); ninety < 4*ten || ninety > 16*ten {
				return fmt.Errorf("%.3f and %.3f", ten, ninety)
			}
			return nil
		})
	}
	ten := m.launching("ten", 10, "plain --kernel 4ms", time.Minute)
	eventually(t, "what holds it to its percent", func() error {
		g, _ := m.state().grant("ten")
		if g.Compute.By != "libkerf" || g.Compute.Why != "strict" || len(g.Shares) != 1 {
			return fmt.Errorf("%+v", g)
		}
		if now := g.Shares[0].Time; now == nil || now.Launches == 0 || now.Waited == 0 || now.Used == nil ||
			*now.Used == 0 {
			return fmt.Errorf("%+v", now)
		}
		return nil
	})
	said := m.metrics()
	for _, want := range []string{
		`kerf_grant_compute_enforced{by="libkerf",container="",grant="ten",namespace="",pod=""} 1`,
		`kerf_grant_launch_wait_seconds_total{container="",gpu="0",gpu_uuid="` + m.uuid(0) + `",grant="ten"`} {
		if !strings.Contains(said, want) {
			t.Errorf("metrics do not tell %s: %s", want, said)
		}
	}
	ten.end()
}

// If idle time is shared, a grant next to an idle owner gets far more than its share, and no more than that once its
// owner comes; and the rule changes live.
func TestIdleTimeIsLent(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, "")
	idle := m.run(flags("--memory 1GiB --percent 90 --name idle --gpu-uuid "+m.uuid(0)), load("--hold 1h"))
	idle.granted()
	const how = "plain --kernel 4ms"
	eventually(t, "idle time is given away", func() error {
		if got := m.launching("burst", 10, how, time.Second).busy().part(); got < 0.3 {
			return fmt.Errorf("it got %.2f of the GPU", got)
		}
		return nil
	})
	idle.end()
	idle.wait()
	eventually(t, "its owner has it again", func() error {
		if ten, ninety := m.race(how, 2*time.Second); ninety < 2*ten {
			return fmt.Errorf("%.2f and %.2f", ten, ninety)
		}
		return nil
	})
	m.write(head + "spec:\n  pools:\n  - {name: default, backends: [driver, libkerf], computePolicy: strict}\n")
	eventually(t, "the changed rule", func() error {
		if got := m.launching("strict", 10, how, time.Second).busy().part(); got > 0.2 {
			return fmt.Errorf("it got %.2f of the GPU", got)
		}
		return nil
	})
}
