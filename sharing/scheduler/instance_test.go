// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// slices7 is what a GPU of seven compute and eight memory slices reports as its MIG geometry.
func slices7() []gpunode.MIGProfile {
	return []gpunode.MIGProfile{
		{Name: "1g.10gb", ID: 19, Compute: 1, MemoryBytes: 10 * gib, MaxInstances: 7, MemorySlices: 1,
			PlacementStarts: []int{0, 1, 2, 3, 4, 5, 6}},
		{Name: "1g.20gb", ID: 15, Compute: 1, MemoryBytes: 20 * gib, MaxInstances: 4, MemorySlices: 2,
			PlacementStarts: []int{0, 2, 4, 6}},
		{Name: "2g.20gb", ID: 14, Compute: 2, MemoryBytes: 20 * gib, MaxInstances: 3, MemorySlices: 2,
			PlacementStarts: []int{0, 2, 4}},
		{Name: "3g.40gb", ID: 9, Compute: 3, MemoryBytes: 40 * gib, MaxInstances: 2, MemorySlices: 4,
			PlacementStarts: []int{0, 4}},
		{Name: "7g.80gb", ID: 0, Compute: 7, MemoryBytes: 80 * gib, MaxInstances: 1, MemorySlices: 8,
			PlacementStarts: []int{0}},
	}
}

// migGrant is a grant of a MIG instance.
type migGrant struct {
	uid     string
	gpu     int
	profile string
	start   int
}

// migStatus is the report of a node of so many GPUs, all in MIG mode.
func migStatus(node, gpus int, grants ...migGrant) gpunode.Status {
	s := statusOf(node, gpus)
	for i := range s.GPUs {
		g := &s.GPUs[i]
		g.MIG, g.FreeBytes, g.FreePercent, g.Levels = true, 0, 0, nil
		g.MIGState = &gpunode.MIGState{MemorySlices: 8, Geometry: slices7()}
	}
	for _, p := range grants {
		s.Grants = append(s.Grants, gpunode.Grant{ID: p.uid + p.profile, PodUID: p.uid, Container: "main",
			Level: "hardware",
			Shares: []gpunode.Share{{GPU: uuid(node, p.gpu), MemoryBytes: 10 * gib, MIGProfile: p.profile,
				MIGStart: p.start}}})
	}
	s.Fingerprint = gpunode.Fingerprint(s.Grants)
	return s
}

func migState(s gpunode.Status) *scheduler.ClusterState {
	b := clusterStateOf(1, 1)
	b.Report("n00", s)
	return b
}

func mig(profile string) map[string]string { return map[string]string{"kerf.dev/mig-" + profile: "1"} }

func TestInstanceFits(t *testing.T) {
	change := func(do func(g *gpunode.GPU), grants ...migGrant) gpunode.Status {
		s := migStatus(0, 1, grants...)
		do(&s.GPUs[0])
		return s
	}
	layout := func(g *gpunode.GPU) {
		g.MIGState.LayoutFromPool = true
		g.MIGState.Instances = []gpunode.MIGInstance{
			{Profile: "1g.10gb", Start: 0, Managed: true, MemorySlices: 1, Ready: true}, {Profile: "1g.10gb", Start: 1,
				Managed: true, MemorySlices: 1, Ready: true},
			{Profile: "3g.40gb", Start: 4, Managed: true, MemorySlices: 4},
		}
	}
	// A GPU instance with several compute instances is reported as unmanaged, whether Kerf or a user created it.
	divided := func(g *gpunode.GPU) {
		g.MIGState.Instances = []gpunode.MIGInstance{{Profile: "3g.40gb", Start: 4, MemorySlices: 4,
			Ready: true}}
	}
	dividedLayout := func(g *gpunode.GPU) {
		layout(g)
		g.MIGState.Instances[1].Managed = false
	}
	hard := []string{"kerf.dev/min-enforcement", "hardware"}
	for name, tc := range map[string]struct {
		status      gpunode.Status
		limits      map[string]string
		annotations []string
		want        scheduler.Reason
		plan        string
	}{
		"an empty GPU": {migStatus(0, 1), mig("3g.40gb"), nil, scheduler.Fits, "/3g.40gb@4"},
		"the only place": {migStatus(0, 1, migGrant{"a", 0, "3g.40gb", 4}), mig("3g.40gb"), nil,
			scheduler.Fits, "/3g.40gb@0"},
		"a full GPU": {migStatus(0, 1, migGrant{"a", 0, "1g.10gb", 0}), mig("7g.80gb"), nil,
			scheduler.LacksInstance, ""},
		"next to the grant of no pod": {migStatus(0, 1, migGrant{"", 0, "1g.10gb", 0}), mig("7g.80gb"), nil,
			scheduler.LacksInstance, ""},
		"parts of one instance": {migStatus(0, 1, migGrant{"a", 0, "3g.40gb", 4}, migGrant{"b", 0, "3g.40gb", 4}),
			mig("3g.40gb"), nil, scheduler.Fits, "/3g.40gb@0"},
		"memory that hardware holds": {migStatus(0, 1), memory(15), hard, scheduler.Fits, "/1g.20gb@6"},
		"as much as the whole":       {migStatus(0, 1), memory(79), hard, scheduler.Fits, "/7g.80gb@0"},
		"memory alone":               {migStatus(0, 1), memory(15), nil, scheduler.WrongModel, ""},
		"another model": {migStatus(0, 1), mig("1g.10gb"), []string{"kerf.dev/gpu-model", "A100"},
			scheduler.WrongModel, ""},
		"not in MIG mode":                 {statusOf(0, 1), mig("1g.10gb"), nil, scheduler.LacksProfile, ""},
		"memory by hardware, no MIG mode": {statusOf(0, 1), memory(15), hard, scheduler.LacksLevel, ""},
		"made by others": {change(func(g *gpunode.GPU) {
			g.MIGState.Instances = []gpunode.MIGInstance{{Profile: "7g.80gb", MemorySlices: 8, Ready: true}}
		}), mig("1g.10gb"), nil, scheduler.LacksInstance, ""},
		"next to one that was divided by hand": {change(divided), mig("3g.40gb"), nil, scheduler.Fits,
			"/3g.40gb@0"},
		"no room next to one that was divided": {change(divided), mig("7g.80gb"), nil, scheduler.LacksInstance,
			""},
		"next to a pod's that was divided": {change(divided, migGrant{"a", 0, "3g.40gb", 4}), mig("3g.40gb"),
			nil, scheduler.Fits, "/3g.40gb@0"},
		"a pod's that was divided counts once": {change(divided, migGrant{"a", 0, "3g.40gb", 4},
			migGrant{"b", 0, "2g.20gb", 2}), mig("2g.20gb"), nil, scheduler.Fits, "/2g.20gb@0"},
		"full with a pod's that was divided": {change(divided, migGrant{"a", 0, "3g.40gb", 4},
			migGrant{"b", 0, "3g.40gb", 0}), mig("1g.10gb"), nil, scheduler.LacksInstance, ""},
		"of a layout what was not divided": {change(dividedLayout), mig("1g.10gb"), nil, scheduler.Fits,
			"/1g.10gb@0"},
		"all of a layout in use but what was divided": {change(dividedLayout, migGrant{"a", 0, "1g.10gb", 0}),
			mig("1g.10gb"), nil, scheduler.LacksInstance, ""},
		"idle ones go": {change(func(g *gpunode.GPU) {
			g.MIGState.Instances = []gpunode.MIGInstance{{Profile: "7g.80gb", Managed: true, MemorySlices: 8,
				Ready: true}}
		}), mig("1g.10gb"), nil, scheduler.Fits, "/1g.10gb@5"},
		"in trouble": {change(func(g *gpunode.GPU) { g.MIGState.Error = "x" }),
			mig("1g.10gb"), nil, scheduler.Unhealthy, ""},
		"sick": {change(func(g *gpunode.GPU) { g.Health = "lost" }), mig("1g.10gb"), nil,
			scheduler.Unhealthy, ""},
		"an older agent": {change(func(g *gpunode.GPU) { g.MIGState.Geometry = nil }),
			mig("1g.10gb"), nil, scheduler.LacksProfile, ""},
		"a list that is none": {change(func(g *gpunode.GPU) { g.MIGState.Geometry[0].MemorySlices = 99 }),
			mig("3g.40gb"), nil, scheduler.LacksProfile, ""},
		"a grant that is none of its places": {migStatus(0, 1, migGrant{"a", 0, "3g.40gb", 1}), mig("1g.10gb"), nil,
			scheduler.Unhealthy, ""},
		"a layout": {change(layout), mig("1g.10gb"), nil, scheduler.Fits, "/1g.10gb@1"},
		"what is left of a layout": {change(layout, migGrant{"a", 0, "1g.10gb", 1}), mig("1g.10gb"), nil,
			scheduler.Fits,
			"/1g.10gb@0"},
		"not yet in the layout": {change(layout), mig("3g.40gb"), nil, scheduler.LacksProfile, ""},
		"not in the layout":     {change(layout), mig("2g.20gb"), nil, scheduler.LacksProfile, ""},
		"all of the layout in use": {change(layout, migGrant{"a", 0, "1g.10gb", 0}, migGrant{"b", 0, "1g.10gb", 1}),
			mig("1g.10gb"), nil, scheduler.LacksInstance, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := migState(tc.status)
			w := want(t, podOf("p", tc.limits, tc.annotations...))
			v := b.Fit(w, "n00", noon())
			if v.Reason != tc.want {
				t.Fatalf("%v: %s, want %v", v.Reason, v.Text, tc.want)
			}
			if tc.want != scheduler.Fits {
				if said := b.Explain(w, noon()); said == "" || strings.Contains(said, "cannot: ") {
					t.Errorf("explained as %q", said)
				}
				return
			}
			if got := scheduler.Annotations(v.Plan)["scheduling.kerf.dev/main"]; got != uuid(0, 0)+tc.plan {
				t.Errorf("planned on %q, want %q", got, tc.plan)
			}
		})
	}
}

// The message for a misspelled profile lists the existing ones, whether the node offers the resource or not.
func TestMisspeltProfileNamesThoseThatThereAre(t *testing.T) {
	const all = "1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 7g.80gb"
	fixed := migStatus(0, 1)
	fixed.GPUs[0].MIGState.LayoutFromPool = true
	fixed.GPUs[0].MIGState.Instances = []gpunode.MIGInstance{{Profile: "1g.10gb", Managed: true, MemorySlices: 1,
		Ready: true}}
	for name, tt := range map[string]struct {
		status     gpunode.Status
		ask        string
		text, line string
	}{
		"one of them": {migStatus(0, 2), "5g.60gb", "write one of " + all,
			"1 node has no GPU with this MIG profile, but with " + all},
		"before any mode": {switchStatus(0, 1), "5g.60gb", "write one of " + all,
			"1 node has no GPU with this MIG profile, but with " + all},
		"a layout": {fixed, "5g.60gb", "write one of 1g.10gb",
			"1 node has no GPU with this MIG profile, but with 1g.10gb"},
		"no MIG at all": {statusOf(0, 1), "5g.60gb", "", "1 node"},
	} {
		b := migState(tt.status)
		for _, offers := range []map[string]int64{nil, {"kerf.dev/mig-" + tt.ask: 1}} {
			if offers != nil {
				b.Machine("n00", scheduler.Machine{Allocatable: offers})
			}
			w := want(t, podOf("p", mig(tt.ask)))
			v := b.Fit(w, "n00", noon())
			if v.Reason == scheduler.Fits || !strings.Contains(v.Text, tt.text) {
				t.Errorf("%s: %v: %q, want %q", name, v.Reason, v.Text, tt.text)
			}
			if line := b.Explain(w, noon()); !strings.Contains(line, tt.line) {
				t.Errorf("%s: explained as %q, want %q", name, line, tt.line)
			}
		}
	}
}

// An instance is taken from its reservation until its node has released it, also in a new cluster state.
func TestInstanceLife(t *testing.T) {
	b := migState(migStatus(0, 1))
	p := podOf("p", mig("3g.40gb"))
	plan, err := b.Reserve(want(t, p), "n00", noon())
	if err != nil {
		t.Fatal(err)
	}
	p.Node, p.Annotations = "n00", scheduler.Annotations(plan)
	b.Pod(p, want(t, p), noon())
	other := want(t, podOf("q", mig("3g.40gb")))
	again := migState(migStatus(0, 1))
	again.Pod(p, want(t, p), noon())
	for name, state := range map[string]*scheduler.ClusterState{"these": b, "again": again} {
		got := scheduler.Annotations(state.Fit(other, "n00", noon()).Plan)["scheduling.kerf.dev/main"]
		if got != uuid(0, 0)+"/3g.40gb@0" {
			t.Errorf("%s: the next one is planned on %q", name, got)
		}
	}
	if s, _ := b.Standing("p"); cmp.Diff(s.Plan, map[string][]string{"main": {uuid(0, 0) + "/3g.40gb@4"}}) != "" {
		t.Errorf("%+v", s)
	}
	// The node did otherwise; then that counts.
	b.Report("n00", migStatus(0, 1, migGrant{"p", 0, "3g.40gb", 0}))
	if got := scheduler.Annotations(b.Fit(other, "n00", noon()).Plan)["scheduling.kerf.dev/main"]; got != uuid(0, 0)+
		"/3g.40gb@4" {
		t.Errorf("after the report the next one is planned on %q", got)
	}
	all := want(t, podOf("r", mig("7g.80gb")))
	b.PodRemoved("p", noon())
	if v := b.Fit(all, "n00", noon()); v.Reason != scheduler.LacksInstance {
		t.Errorf("%v while the node has not let go", v.Reason)
	}
	before := b.Capacity("n00", noon())
	b.Report("n00", migStatus(0, 1))
	if v := b.Fit(all, "n00", noon()); v.Reason != scheduler.Fits || !b.Capacity("n00", noon()).More(before) {
		t.Errorf("%v after the node has let go", v.Reason)
	}
}

// An init container takes the instance of a later one; containers that run at the same time have one each.
func TestInstancesOfOnePod(t *testing.T) {
	b := migState(migStatus(0, 1))
	p := podOf("p", mig("3g.40gb"))
	p.Containers = append(p.Containers, sharing.PodContainer{Name: "side", Limits: mig("3g.40gb")},
		sharing.PodContainer{Name: "first", Kind: sharing.ContainerInit, Limits: mig("3g.40gb")})
	v := b.Fit(want(t, p), "n00", noon())
	if d := cmp.Diff(map[string]string{"scheduling.kerf.dev/main": uuid(0, 0) + "/3g.40gb@4",
		"scheduling.kerf.dev/side": uuid(0, 0) + "/3g.40gb@0"}, scheduler.Annotations(v.Plan)); d != "" {
		t.Errorf("%v %s (-want +got):\n%s", v.Reason, v.Text, d)
	}
}

// The pods that give way for an instance are those on the GPU where the fewest do.
func TestInstanceVictims(t *testing.T) {
	b := migState(migStatus(0, 2, migGrant{"a", 0, "1g.10gb", 0}, migGrant{"b", 0, "1g.10gb", 4},
		migGrant{"c", 1, "3g.40gb", 0}))
	var all []scheduler.Victim
	for _, uid := range []string{"a", "b", "c"} {
		p := podOf(uid, mig("1g.10gb"))
		p.Node = "n00"
		b.Pod(p, want(t, p), noon())
		all = append(all, scheduler.Victim{UID: uid})
	}
	high := podOf("h", mig("7g.80gb"))
	high.Priority = 10
	if got := b.Victims(want(t, high), "n00", all, noon()); len(got) != 1 || got[0].UID != "c" {
		t.Errorf("%+v give way", got)
	}
}

// A node of both kinds of GPU gives each what it is asked for, and the score has the terms of an instance.
func TestMixedNode(t *testing.T) {
	s := statusOf(0, 2)
	s.GPUs[1] = migStatus(0, 2).GPUs[1]
	b := migState(s)
	b.Report("n00", s)
	for _, tc := range []struct {
		limits map[string]string
		gpu    int
		term   string
	}{{mig("1g.10gb"), 1, "instance"}, {memory(20), 0, "fragmentation"}, {whole(1), 0, "fragmentation"}} {
		w := want(t, podOf("p", tc.limits))
		v := b.Fit(w, "n00", noon())
		terms := b.Terms(w, "n00", machine().CPU, noon())
		if v.Reason != scheduler.Fits || v.Plan[0].Placement[0].GPU.String() != uuid(0, tc.gpu) || len(terms) == 0 ||
			terms[0].Name != tc.term {
			t.Errorf("%v: %v %+v %+v", tc.limits, v.Reason, v.Plan, terms)
		}
		if answers := b.Answers(w, nil, noon().Add(time.Second)); len(answers) != 1 ||
			answers[0].Score != b.Score(w, "n00", machine().CPU, noon()) {
			t.Errorf("%v: answers %+v", tc.limits, answers)
		}
	}
}
