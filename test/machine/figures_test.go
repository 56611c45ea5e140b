// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/test/benchline"
)

// figures has the programs measured, which takes minutes and judges nothing.
var figures = flag.Bool("figures", false, "measure delay and overshoot of the watch, and how GPU time is shared")

// histogram is count and sum of one of the agent's metrics.
type histogram struct {
	count, sum float64
}

func (m *machine) histogram(name string) (h histogram) {
	m.t.Helper()
	for line := range strings.Lines(m.metrics()) {
		_, _ = fmt.Sscanf(line, name+"_count %g", &h.count) // of other lines nothing is taken
		_, _ = fmt.Sscanf(line, name+"_sum %g", &h.sum)
	}
	return h
}

// held is what the simulated driver gave the processes of a cgroup.
func (m *machine) held(cgroup string) (sum uint64) {
	for _, p := range m.processes() {
		if p.Cgroup == cgroup {
			sum += p.Bytes
		}
	}
	return sum
}

// spread says how numbers are distributed.
// median is the middle of the values; at least one is needed.
func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

func spread(all []float64) string {
	slices.Sort(all)
	return fmt.Sprintf("p50 %.0f, p90 %.0f, max %.0f", all[len(all)/2], all[len(all)*9/10], all[len(all)-1])
}

// Level reactive: how long a program that is over its cap lives, how long it can have been over when that was found,
// and how far over it was, for one that takes 2 GiB too much at once and one that goes on taking.
func TestFiguresReactive(t *testing.T) {
	if !*figures {
		t.Skip("needs -figures (make figures)")
	}
	const rounds = 12
	m := newWatched(t, ", onOverCap: kill")
	pin := " --gpu-uuid " + m.uuid(0)
	for _, beside := range []string{"nothing else on the GPU", "a program within its cap next to it"} {
		if beside != "nothing else on the GPU" {
			m.run(flags("--memory 4GiB --name neighbour"+pin), load("--alloc 3GiB --hold 1h")).loads(1)
		}
		var lived []float64
		delay, over := m.histogram("kerf_reactive_detection_seconds"), m.histogram("kerf_reactive_overshoot_bytes")
		for range rounds {
			r := m.run(flags("--memory 4GiB"+pin), load("--alloc 6GiB --hold 1h"))
			grant := r.granted()
			for r.running() && m.held(grant.Cgroup) < 6*gib {
				time.Sleep(time.Millisecond)
			}
			since := time.Now() // it may have been killed before that was seen
			wantKilled(t, r)
			lived = append(lived, float64(time.Since(since).Milliseconds()))
		}
		d, o := m.histogram("kerf_reactive_detection_seconds"), m.histogram("kerf_reactive_overshoot_bytes")
		t.Logf("FIGURE reactive, %s: lives %s ms of %d after its last allocation; over for at most %.0f ms when "+
			"found, in the mean, by %.0f MiB",
			beside, spread(lived), rounds, 1000*(d.sum-delay.sum)/(d.count-delay.count),
			(o.sum-over.sum)/(o.count-over.count)/float64(mib))
		key := map[bool]string{true: "reactive.alone", false: "reactive.shared"}[beside == "nothing else on the GPU"]
		t.Log(benchline.Line(key+".p50", median(lived), "ms"))
		t.Log(benchline.Line(key+".max", slices.Max(lived), "ms"))
	}
	// 64 MiB in every 10 ms, which is 6.4 GiB a second, until it is killed.
	m.set("gpu=all", "latency.alloc=10ms")
	var by, late []float64
	for range rounds {
		delay, over := m.histogram("kerf_reactive_detection_seconds"), m.histogram("kerf_reactive_overshoot_bytes")
		wantKilled(t, m.run(flags("--memory 2GiB"+pin), load("--alloc 10GiB --step 64MiB --hold 1h")))
		by = append(by, (m.histogram("kerf_reactive_overshoot_bytes").sum-over.sum)/float64(mib))
		late = append(late, 1000*(m.histogram("kerf_reactive_detection_seconds").sum-delay.sum))
	}
	t.Logf("FIGURE reactive, taking 64 MiB every 10 ms: over for at most %s ms when found, by %s MiB, of %d",
		spread(late), spread(by), rounds)
	t.Log(benchline.Line("reactive.growing.over.p50", median(by), "MiB"))
	t.Log(benchline.Line("reactive.growing.over.max", slices.Max(by), "MiB"))
}

// Ten and ninety percent of a GPU's time that both want all of, over twenty seconds, their start among them: what the
// programs say that ran, and not what Kerf charged them with, which counts the wait for the other's kernels too.
func TestFiguresOfTime(t *testing.T) {
	if !*figures {
		t.Skip("needs -figures (make figures)")
	}
	for _, rule := range []string{"strict", "fair"} {
		m := newPreloading(t, ", computePolicy: "+rule)
		for _, how := range []string{"plain --kernel 10ms", "graph --kernel 2500us"} {
			ten, ninety := m.race(how, 20*time.Second)
			t.Logf("FIGURE 10:90, %s, %s: 1 to %.2f over 20 s, the GPU busy for %.0f %%", rule, how, ninety/ten,
				100*(ten+ninety))
			key := "share." + rule + "." + strings.Fields(how)[0]
			t.Log(benchline.Line(key+".ratio", ninety/ten, "ratio"))
			t.Log(benchline.Line(key+".busy", 100*(ten+ninety), "%"))
		}
	}
}

// What a neighbor with 70% of a GPU's time keeps while one with 30% does its worst: a kernel that does not end as long
// as the neighbor is there, and a thousand tiny launches at a time.
func TestFiguresOfNeighbours(t *testing.T) {
	if !*figures {
		t.Skip("needs -figures (make figures)")
	}
	for _, rule := range []string{"strict", "fair"} {
		m := newPreloading(t, ", computePolicy: "+rule)
		const own, hold = "plain --kernel 4ms", 10 * time.Second
		alone := m.launching("neighbour", 70, own, hold).busy().part()
		for _, worst := range []struct{ key, what, how string }{
			{"long", "a kernel of 15 s", "plain --kernel 15s"},
			{"many", "a thousand launches of 10 us at a time", "plain --kernel 10us --queue 1000"},
		} {
			bad := m.run(flags("--memory 1GiB --percent 30 --name worst --gpu-uuid "+m.uuid(0)),
				load("--hold 1h --launch "+worst.how))
			bad.granted()
			time.Sleep(500 * time.Millisecond) // it is at it when the neighbour comes
			beside := m.launching("neighbour", 70, own, hold).busy().part()
			t.Logf("FIGURE neighbour at 70 percent, %s, next to %s: %.0f %% of the GPU's time, %.0f %% alone", rule,
				worst.what, 100*beside, 100*alone)
			t.Log(benchline.Line("share."+rule+".neighbor."+worst.key, 100*beside, "%"))
			bad.end()
			bad.wait()
			m.wantHealth(0, "healthy")
		}
	}
}
