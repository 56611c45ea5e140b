// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/test/benchline"
)

// frontEndStart is what the start of many pods took by one front end.
type frontEndStart struct {
	own   []time.Duration // Of the agent, for each pod, in each round.
	total []time.Duration // From the first creation until all ran, in each round.
}

// ownTimes are the agent's histograms of all that delays a pod of one container, by either front end.
func ownTimes() []string { return append(measured(), "kerf_claims_prepare_duration_seconds") }

// What the start of many pods costs by each front end, in rounds that take turns. It judges nothing: the figures
// depend on the machine.
func TestBenchFrontEnds(t *testing.T) {
	if *benchPods == 0 {
		t.Skip("it measures, with -bench-pods=N")
	}
	all := map[string]*frontEndStart{"plugin": {}, "dra": {}}
	order := []string{"plugin", "dra"}
	for round := range *benchRounds {
		for _, name := range order {
			t.Run(fmt.Sprintf("%s-%d", name, round), func(t *testing.T) {
				measureFrontEnd(t, name == "dra", all[name])
			})
		}
		slices.Reverse(order)
	}
	if t.Failed() {
		return
	}
	var report strings.Builder
	for name, s := range all {
		for what, values := range map[string][]time.Duration{"own": s.own, "total": s.total} {
			slices.Sort(values)
			ms := float64(values[len(values)/2].Microseconds()) / 1000
			fmt.Fprintf(&report, "\n  %s", benchline.Line("frontend."+name+"."+what, ms, "ms"))
			fmt.Fprintf(&report, "\n  %s, %s: rounds %v", name, what, values)
		}
	}
	t.Logf("measured:%s", report.String())
}

// measureFrontEnd starts the pods once, and adds what it took.
func measureFrontEnd(t *testing.T, claims bool, s *frontEndStart) {
	var e *testCase
	spec := func(name string) podSpec { return one(name, gibs(1), hold) }
	if claims {
		e = beginWithDRA(t)
		e.template("one", "1Gi", "")
		spec = func(name string) podSpec { return byClaim(name, "one", hold) }
	} else {
		e = beginWithAgent(t)
	}
	e.warmUp(spec)
	agent, before := e.agentInstances(), e.ownTime()
	total := e.startSpecs(*benchPods, spec)
	own := e.ownTime() - before
	if now := e.agentInstances(); now != agent {
		e.Fatalf("the agent was %s, and is %s: its metrics started again", agent, now)
	}
	if own <= 0 {
		e.Fatalf("the agent counted no time")
	}
	s.own = append(s.own, own/time.Duration(*benchPods))
	s.total = append(s.total, total)
}

// ownTime is the sum of all that the agent has counted.
func (e *testCase) ownTime() time.Duration {
	e.Helper()
	r := e.node.in(e.node.program("kerf"), "metrics")
	if r.err != nil {
		e.Fatalf("kerf metrics: %v", r)
	}
	var sum float64
	for _, name := range ownTimes() {
		_, rest, found := strings.Cut(r.out, "\n"+name+"_sum ")
		word, _, _ := strings.Cut(rest, "\n")
		v, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		if !found || err != nil {
			e.Fatalf("metric %s_sum: %q", name, word)
		}
		sum += v
	}
	return seconds(sum)
}
