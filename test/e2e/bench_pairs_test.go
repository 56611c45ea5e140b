// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var benchPairs = flag.Int("bench-pairs", 0, "measure the agents of this source and of -from in so many paired rounds "+
	"of -bench-pods pods")

// agentFigures are what one round measured, by name: durations in ms, memory in MiB, CPU in seconds.
type agentFigures map[string]float64

// releaseTime is how long an agent may take to release what the pods of a round held.
const releaseTime = 30 * time.Second

// What the agent of this source costs against that of another one, on the same node, in turns. It judges nothing. Each
// round replaces the agent, starts pods with a share at once, and deletes them. A round in which the other agent keeps
// a grant does not count. That of b8a025f does so if a cgroup is gone before the agent has asked the driver about it.
func TestBenchPairs(t *testing.T) {
	if *upgradeFrom == "" || *benchPairs == 0 || *benchPods == 0 {
		t.Skip("it measures, with -from=DIR, -bench-pairs=N and -bench-pods=M")
	}
	e := begin(t)
	older, newer := e.releases()
	turns := &agentTurns{testCase: e}
	ratios := map[string][]float64{}
	for attempt, round := 0, 0; round < *benchPairs; attempt++ {
		if attempt == 3**benchPairs {
			t.Fatalf("only %d rounds of %d attempts count", round, attempt)
		}
		order := []*release{older, newer}
		if attempt%2 == 1 { // so that neither is always first
			slices.Reverse(order)
		}
		of := map[*release]agentFigures{}
		var err error
		for _, r := range order {
			turns.let(r)
			if of[r], err = e.measureAgent(attempt); err != nil {
				break
			}
		}
		if err != nil {
			t.Logf("attempt %d does not count: %s: %v", attempt+1, turns.now.what, err)
			turns.let(newer) // which has to release what is left
			continue
		}
		round++
		for _, name := range slices.Sorted(maps.Keys(of[older])) {
			ratios[name] = append(ratios[name], of[newer][name]/of[older][name])
			t.Logf("round %d: %-18s before %8.2f  now %8.2f", round, name, of[older][name], of[newer][name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ratios)) {
		all := slices.Sorted(slices.Values(ratios[name]))
		t.Logf("%-18s now/before: median %.3f, from %.3f to %.3f, %d rounds", name, median(all), all[0],
			all[len(all)-1], len(all))
	}
}

// agentTurns lets agents of two releases run in turns.
type agentTurns struct {
	*testCase
	now *release
}

// let makes the agent that of a release, and waits until no grant of before is left.
func (a *agentTurns) let(r *release) {
	a.Helper()
	if a.now != r {
		a.become(a.now, r)
		a.now = r
	}
	if err := a.allReleased(); err != nil {
		a.Fatalf("%s: %v", r.what, err)
	}
}

// median is that of sorted values.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// allReleased waits until no pod of this test holds anything.
func (e *testCase) allReleased() error {
	return pollFor(releaseTime, "release of all grants", func() error {
		s, err := e.status() // The agent may be restarting.
		if err != nil {
			return err
		}
		for _, g := range s.Grants {
			if g.Namespace == e.namespace {
				return fmt.Errorf("the agent holds %s for %s", g.ID, g.Pod)
			}
		}
		return nil
	})
}

// measureAgent starts the pods at once, waits until they have ended, and returns what the agent needed. An error is
// what the agent did not release.
func (e *testCase) measureAgent(round int) (agentFigures, error) {
	e.Helper()
	e.warmUp(func(name string) podSpec { return one(name, gibs(1), hold) })
	logged, cpu := len(e.activations()), e.cpuSeconds(agentName)
	var pods []*pod
	for i := range *benchPods {
		pods = append(pods, e.create(one(fmt.Sprintf("many-%d-%03d", round, i), gibs(1), hold)))
	}
	for _, p := range pods {
		p.running()
	}
	out := agentFigures{"memory": e.residentMiB(agentName, "VmHWM:")}
	for _, p := range pods {
		p.delete()
	}
	if err := e.allReleased(); err != nil {
		return nil, err
	}
	out["cpu"] = e.cpuSeconds(agentName) - cpu
	took := e.activations()[logged:]
	if len(took) != *benchPods {
		e.Fatalf("the agent's log has %d of %d activations", len(took), *benchPods)
	}
	for i, name := range []string{"activation", "injection"} {
		var all []float64
		for _, t := range took {
			all = append(all, float64(t[i].Nanoseconds())/1e6)
		}
		slices.Sort(all)
		out[name+" p50"], out[name+" p99"] = median(all), all[(len(all)-1)*99/100]
	}
	return out, nil
}

// activations are how long the agent took to activate, and to inject, each container of its log, whatever it
// calls that.
func (e *testCase) activations() (all [][2]time.Duration) {
	e.Helper()
	for l := range strings.Lines(e.agentLog(false)) {
		if !strings.Contains(l, " inject_took=") {
			continue
		}
		var both [2]time.Duration
		for i, key := range []string{" took=", " inject_took="} {
			_, rest, _ := strings.Cut(l, key)
			word, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			d, err := time.ParseDuration(word)
			if err != nil {
				e.Fatalf("the agent's log: %s in %q: %v", key, l, err)
			}
			both[i] = d
		}
		all = append(all, both)
	}
	return all
}

// cpuSeconds is the CPU time that a program of the node has used, also in threads that have ended. Linux counts it in
// hundredths of a second.
func (e *testCase) cpuSeconds(program string) float64 {
	e.Helper()
	r := e.node.in("/bin/sh", "-c", "cat /proc/$("+e.node.busybox()+" pidof "+program+")/stat")
	_, rest, _ := strings.Cut(r.out, ") ") // after the name, the state is field 3
	f := strings.Fields(rest)
	if r.err != nil || len(f) < 13 {
		e.Fatalf("CPU time of %s: %v", program, r)
	}
	user, err := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if err != nil || err2 != nil {
		e.Fatalf("CPU time of %s: %q", program, r.out)
	}
	return float64(user+system) / 100
}
