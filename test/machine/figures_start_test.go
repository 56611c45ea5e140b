// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/test/benchline"
)

// How much longer programs that start at once under one grant take with the library, while an agent runs: before the
// size of a context is measured, and afterwards.
func TestFiguresOfStarts(t *testing.T) {
	if !*figures {
		t.Skip("needs -figures (make figures)")
	}
	with := newPooled(t, "h100x8", "r580", "driver, libkerf, reactive", "")
	without := newPooled(t, "h100x8", "r580", "driver, reactive", "")
	began := time.Now()
	with.starts(t, 1)
	t.Log(benchline.Line("context.first", float64(time.Since(began).Milliseconds()), "ms"))
	t.Logf("FIGURE the first context before its size is measured: %d ms from kerf run to its end",
		time.Since(began).Milliseconds())
	without.starts(t, 1)
	began = time.Now()
	with.starts(t, 100)
	t.Log(benchline.Line("context.hundred.before", float64(time.Since(began).Milliseconds()), "ms"))
	t.Logf("FIGURE 100 programs before the size of a context is measured: %d ms from kerf run to their end",
		time.Since(began).Milliseconds())
	with.measured()
	for _, many := range []int{1, 100, 300} {
		var took [2]time.Duration // the best of three each, in turn
		for range 3 {
			for i, m := range []*machine{with, without} {
				if one := m.in(t).starts(t, many); took[i] == 0 || one < took[i] {
					took[i] = one
				}
			}
		}
		added := float64((took[0] - took[1]).Microseconds()) / 1000
		t.Logf("FIGURE %d programs that start at once under one attachment, with an agent: %d ms with libkerf, %d ms "+
			"without, %.2f ms added in all, %.2f each",
			many, took[0].Milliseconds(), took[1].Milliseconds(), added, added/float64(many))
		t.Log(benchline.Line(fmt.Sprintf("start.libkerf.%d.added", many), added/float64(many), "ms"))
		t.Log(benchline.Line(fmt.Sprintf("start.libkerf.%d.all", many), float64(took[0].Milliseconds()), "ms"))
	}
}

// How long a program takes from kerf run to its end, with a cap that the driver enforces.
func TestFiguresOfRun(t *testing.T) {
	if !*figures {
		t.Skip("needs -figures (make figures)")
	}
	m := newMachine(t, setup{})
	var took []time.Duration
	for range 200 {
		began := time.Now()
		if r := m.kerf("run", "--memory", "1GiB", "--", "/bin/true"); r.code != 0 {
			t.Fatal(r)
		}
		took = append(took, time.Since(began))
	}
	t.Log(benchline.Durations("run", took))
}

// starts is how long so many programs need which start at once, make a context and take 2 MiB.
func (m *machine) starts(t *testing.T, many int) time.Duration {
	t.Helper()
	script := fmt.Sprintf(
		`began=$(date +%%s%%N); for i in $(seq %d); do %s --json --alloc 2MiB >/dev/null & done; wait; echo $(($(date +%%s%%N) - began))`, many, program("gpuload"))
	r := m.run(flags("--memory 60GiB --gpu-uuid "+m.uuid(0)), []string{"sh", "-c", script})
	var ns int64
	if _, err := fmt.Sscan(r.lines(1)[0], &ns); err != nil {
		t.Fatal(err)
	}
	r.wait()
	m.noGrants()
	return time.Duration(ns)
}

// What one sample of the reactive backend costs at 8 GPUs with 25 processes each, by the agent's own count, with the
// simulated driver's answers in it.
func TestFiguresOfLooks(t *testing.T) {
	if !*figures {
		t.Skip("needs -figures (make figures)")
	}
	m := newPooled(t, "h100x8", "r580", "driver, reactive", "")
	for i := range 8 {
		m.run(flags("--memory 60GiB --gpu-uuid "+m.uuid(i)), load("--fork 25 --alloc 64MiB --hold 1h")).loads(25)
	}
	before := m.histogram("kerf_reactive_check_duration_seconds")
	time.Sleep(10 * time.Second)
	after := m.histogram("kerf_reactive_check_duration_seconds")
	looks := after.count - before.count
	t.Logf("FIGURE one look at 8 GPUs with 200 processes, driver and all: %.1f ms, %.0f looks in 10 s",
		1000*(after.sum-before.sum)/max(1, looks), looks)
	t.Log(benchline.Line("reactive.check", 1000*(after.sum-before.sum)/max(1, looks), "ms"))
}

// How soon an owner of 90% of a GPU's time has it again after it rested for a second while a neighbor of 10% used it.
// The figures are its percent of the first 200 ms, and of the second after these.
func TestFiguresOfGivingBack(t *testing.T) {
	if !*figures {
		t.Skip("needs -figures (make figures)")
	}
	m := newPreloading(t, ", computePolicy: fair")
	borrower := m.run(flags("--memory 1GiB --percent 10 --name borrower --gpu-uuid "+m.uuid(0)),
		load("--hold 1h --launch plain --kernel 4ms --queue 8"))
	borrower.granted()
	again := program("gpuload") + " --json --launch plain --kernel 4ms --queue 8 --hold "
	script := "for i in 1 2 3 4 5; do sleep 1; " + again + "200ms; sleep 1; " + again + "1200ms; done"
	owner := m.run(flags("--memory 1GiB --percent 90 --name owner --gpu-uuid "+m.uuid(0)), []string{"sh", "-c", script})
	var early, later []float64
	var first float64 // nanoseconds of the GPU in the first 200 ms
	for i, line := range owner.lines(20) {
		b := decode[busy](t, line)
		switch i % 4 {
		case 1:
			first = float64(b.GPU)
			early = append(early, 100*b.part())
		case 3:
			later = append(later, 100*(float64(b.GPU)-first)/(float64(b.Wall)-200e6))
		}
	}
	borrower.end()
	t.Logf("FIGURE fair: of an owner of 90 percent that comes back after a second, in percent of the GPU's time: "+
		"first 200 ms %s; the second after these %s, of %d (the second by what a run of 1.2 s got beyond what one of "+
		"200 ms had got)", spread(early), spread(later), len(early))
	t.Log(benchline.Line("share.return.first", median(early), "%"))
	t.Log(benchline.Line("share.return.later", median(later), "%"))
}
