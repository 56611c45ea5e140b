// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sim/machine"
)

var (
	migRounds = flag.Int("mig-rounds", 20, "how often pods with MIG instances come and go")
	migSeed   = flag.Uint64("mig-seed", 22, "which pods these are")
)

// migPods is how many pods come in a round to each GPU in MIG mode, at most. In one round of crowdedEvery they come
// whether or not all fit at once, and those without an instance wait for others' end. In other rounds only as many come
// as fit with the pods that stay, which takes half the time.
const (
	migPods      = 3
	crowdedEvery = 5
)

// useMachine puts other GPUs in place of those that are there, and another agent that uses them. No agent has seen
// both: it would count those that are gone as lost until the next reboot.
func (e *testCase) useMachine(machine string) {
	e.Helper()
	e.sendAway()
	e.node.do(e.T, "kill", "gpusim", "KILL")
	if r := e.node.in("rm", "/run/kerf/inventory.json"); r.err != nil {
		e.Fatalf("forget the GPUs: %v", r)
	}
	if r := command("env", "KERF_E2E_MACHINE="+machine, e.node.script, "up"); r.err != nil {
		e.Fatalf("node.sh up: %v", r)
	}
	e.bringBack()
}

// cutTwoKinds makes the node one of H100 and A100, and has the agent manage MIG on one of each until the test ends. The
// A100 takes a reset for its MIG mode, which the pool allows.
func (e *testCase) cutTwoKinds() {
	e.Helper()
	e.Cleanup(func() { e.useMachine("h100x8") })
	e.useMachine(filepath.Join(e.node.env["REPO"], "test/e2e/node/h100x7-a100.yaml"))
	rules := e.readRules()
	e.Cleanup(func() { e.writeRules(rules) })
	e.nowRules(cutRules(e, rules, "{index: [6, 7], migEnabled: true}", "    allowGPUReset: true\n"))
	e.untilCut()
}

// asking is what a pod may ask for, the profile that it gets, and the size of that, in GiB, rounded down.
type asking struct {
	limits  map[string]string
	profile string
	// hard is true for an amount of memory that only the hardware may hold.
	hard bool
	size uint64
}

func askings() []asking {
	of := func(profile string, size uint64) asking { return asking{instance(profile), profile, false, size} }
	return []asking{of("1g.10gb", 9), of("1g.10gb", 9), of("1g.20gb", 19), of("2g.20gb", 19), of("3g.40gb", 39),
		of("4g.40gb", 39), {gibs(12), "1g.20gb", true, 19}}
}

// stayer is the profile of who stays on each GPU.
const stayer = "2g.20gb"

// comers is what comes to a GPU in a round.
func comers(e *testCase, r *rand.Rand, table *mig.Table, crowded bool) []asking {
	e.Helper()
	here, err := table.Lookup("stayer", stayer)
	if err != nil {
		e.Fatal(err)
	}
	// There it blocks no other instance.
	beside := []mig.Place{{Profile: here.ID, Start: slices.Max(here.Starts)}}
	var out []asking
	var wanted []mig.Profile
	for range migPods {
		ask := askings()[r.IntN(len(askings()))]
		p, err := table.Lookup("asking", ask.profile)
		if err != nil {
			e.Fatal(err)
		}
		if wanted = append(wanted, p); !crowded && !fit(table, beside, wanted) {
			wanted = wanted[:len(wanted)-1]
			continue
		}
		out = append(out, ask)
	}
	return out
}

// fit reports whether there are places for all of them.
func fit(table *mig.Table, taken []mig.Place, wanted []mig.Profile) bool {
	if _, err := table.Occupy(taken); err != nil || len(wanted) == 0 {
		return err == nil
	}
	return slices.ContainsFunc(wanted[0].Starts, func(start int) bool {
		return fit(table, append(slices.Clone(taken), mig.Place{Profile: wanted[0].ID, Start: start}), wanted[1:])
	})
}

// tableOf is the MIG geometry of the GPUs of a simulated machine.
func tableOf(t *testing.T, name string) *mig.Table {
	t.Helper()
	m, err := machine.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	var list []mig.Profile
	for _, p := range m.GPUs[0].Model.Profiles {
		list = append(list, mig.Profile{ID: int(p.ID), Name: p.Name, Compute: p.Slices, Memory: p.Memory,
			SMs: int(p.SMs), MaxInstances: p.Max, Size: p.Size, Starts: p.Starts})
	}
	table, err := mig.NewTable(list)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// Pods of mixed profiles come and go, on an H100 and an A100 of one node. Their neighbors are not restarted and keep
// their instances, no instance is left behind, and after each round the ledger agrees with the driver.
func TestMIGRounds(t *testing.T) {
	e := withScheduler(t)
	e.cutTwoKinds()
	models, tables := []string{"*H100*", "*A100*"}, []*mig.Table{tableOf(t, "h100x8"), tableOf(t, "a100x8")}
	on := func(model string, s podSpec) podSpec {
		s.annotations = map[string]string{"kerf.dev/gpu-model": model}
		return byKerf(s)
	}
	var stay []*pod
	for i, model := range models {
		stay = append(stay, e.create(on(model, one(fmt.Sprintf("stays-%d", i), instance(stayer),
			"exec gpuload --json --alloc 15GiB --hold 1h"))))
	}
	ids, devices := make([]string, len(stay)), make([]string, len(stay))
	for i, p := range stay {
		p.running()
		ids[i], devices[i] = p.id("main"), e.visible(p)
	}
	r := rand.New(rand.NewPCG(6, *migSeed))
	began, runs, books, count := time.Now(), time.Duration(0), time.Duration(0), 0
	for round := range *migRounds {
		start := time.Now()
		var pods []*pod
		var sizes []uint64
		for i, model := range models {
			for _, ask := range comers(e, r, tables[i], round%crowdedEvery == crowdedEvery-1) {
				s := on(model, one(fmt.Sprintf("r%d-%d", round, len(pods)), ask.limits, look2))
				if ask.hard {
					s.annotations["kerf.dev/min-enforcement"] = "hardware"
				}
				pods, sizes = append(pods, e.create(s)), append(sizes, ask.size*gib)
			}
		}
		for i, p := range pods {
			p.phase(corev1.PodSucceeded)
			e.sawOne(p, sizes[i])
		}
		runs, count = runs+time.Since(start), count+len(pods)
		for _, p := range pods {
			p.startDeletion()
		}
		for _, p := range pods {
			eventually(e, "end of "+p.name, p.goneError)
		}
		e.pods = slices.DeleteFunc(e.pods, func(p *pod) bool { return slices.Contains(pods, p) })
		start = time.Now()
		// What was used is kept warm for a second. Every other round goes on with it.
		if round%2 == 1 || round == *migRounds-1 {
			eventually(e, "a ledger that is as the driver is", func() error { return e.cutAsBooked(len(stay)) })
		} else {
			eventually(e, "a ledger that is as the driver is, with what is kept warm",
				func() error { return e.toldAsCut(devices) })
		}
		books += time.Since(start)
		for i, p := range stay {
			if id, device := p.id("main"), e.visible(p); id != ids[i] || device != devices[i] {
				t.Fatalf("round %d: %s was %s on %s, and is %s on %s", round, p.name, ids[i], devices[i], id, device)
			}
		}
	}
	each := func(d time.Duration) time.Duration {
		return (d / time.Duration(*migRounds)).Round(10 * time.Millisecond)
	}
	t.Logf("%d rounds of up to %d pods on each of %d GPUs, %d pods in all: %v a round, of that %v until all have "+
		"run, and %v until the ledger is right",
		*migRounds, migPods, len(models), count, each(time.Since(began)), each(runs), each(books))
	for _, p := range stay {
		if l := p.loads("main", 1)[0]; l.Error != nil {
			t.Errorf("%s: %v", p.name, l)
		}
		p.delete()
	}
	eventually(e, "no instance", func() error { return e.cutAsBooked(0) })
}

// toldAsCut compares the driver's instances with all that the agent tells of, in use or not, and those that have a
// grant with those that are in use.
func (e *testCase) toldAsCut(used []string) error {
	here, told, granted, err := e.bothSides()
	if err == nil && (!slices.Equal(here, told) || !slices.Equal(granted, slices.Sorted(slices.Values(used)))) {
		err = fmt.Errorf("the driver has %q, the agent tells of %q, of which %q are granted, and %q are in use", here,
			told, granted, used)
	}
	return err
}
