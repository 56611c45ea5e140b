// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

func TestFitSaysWhyNot(t *testing.T) {
	pods := map[string]sharing.Pod{
		"40GiB":    podOf("p", memory(40)),
		"whole":    podOf("p", whole(1)),
		"three":    podOf("p", whole(3)),
		"T4":       podOf("p", memory(4), "kerf.dev/gpu-model", "*T4*"),
		"hardware": podOf("p", memory(4), "kerf.dev/min-enforcement", "hardware"),
		"100GiB":   podOf("p", memory(100)),
		"profile":  podOf("p", map[string]string{sharing.ResourcePercent: "10"}, "kerf.dev/profile", "small"),
	}
	tests := []struct {
		name, pod string
		change    func(*gpunode.Status)
		after     time.Duration
		want      scheduler.Reason
		text      string
	}{
		{name: "fits", pod: "40GiB", want: scheduler.Fits},
		{name: "stale", pod: "40GiB", after: 41 * time.Second, want: scheduler.Stale, text: "last heard from 41s ago"},
		{name: "not stale yet", pod: "40GiB", after: 40 * time.Second, want: scheduler.Fits},
		{name: "torn", pod: "40GiB", change: func(s *gpunode.Status) { s.Fingerprint = "0" }, want: scheduler.Torn},
		{name: "not ready", pod: "40GiB", change: func(s *gpunode.Status) {
			s.Conditions = []gpunode.Condition{{Type: gpunode.ConditionReady, Status: gpunode.False,
				Message: "no NRI\nno driver"}}
		}, want: scheduler.NotReady, text: "no NRI"},
		{name: "model", pod: "T4", want: scheduler.WrongModel},
		{name: "level", pod: "hardware", want: scheduler.LacksLevel,
			text: "level driver at most, hardware required: request a whole GPU"},
		{name: "too small", pod: "100GiB", want: scheduler.TooSmall},
		{name: "too few", pod: "three", want: scheduler.LacksGPUs, text: "2 GPUs, 3 requested"},
		{name: "profile", pod: "profile", want: scheduler.Refused, text: "not known"},
		{name: "sick", pod: "40GiB", change: func(s *gpunode.Status) {
			s.GPUs[0].Health, s.GPUs[1].Health = "lost",
				"suspect"
		}, want: scheduler.Unhealthy},
		{name: "one sick", pod: "40GiB", change: func(s *gpunode.Status) { s.GPUs[0].Health = "lost" },
			want: scheduler.Fits},
		{name: "full", pod: "40GiB", change: func(s *gpunode.Status) {
			s.GPUs[0].FreeBytes,
				s.GPUs[1].FreeBytes = 39*gib, 39*gib
		}, want: scheduler.LacksCapacity, text: "the most free on one GPU is 39GiB"},
		{name: "burst comes back", pod: "40GiB", change: func(s *gpunode.Status) {
			s.GPUs[0].FreeBytes, s.GPUs[1].FreeBytes, s.GPUs[1].BurstBytes = 39*gib, 39*gib, gib
		}, want: scheduler.Fits},
		{name: "more used than there is", pod: "whole", change: func(s *gpunode.Status) {
			for i := range s.GPUs {
				s.GPUs[i].FreeBytes, s.GPUs[i].BurstBytes, s.GPUs[i].FreePercent = 0, math.MaxInt64, -20
			}
		}, want: scheduler.LacksCapacity},
		{name: "MIG", pod: "whole", change: func(s *gpunode.Status) { s.GPUs[0].MIG, s.GPUs[1].MIG = true, true },
			want: scheduler.WrongModel},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := clusterStateOf(1, 2)
			s := statusOf(0, 2)
			if tt.change != nil {
				tt.change(&s)
			}
			b.Report("n00", s)
			v := b.Fit(want(t, pods[tt.pod]), "n00", noon().Add(tt.after))
			if v.Reason != tt.want || !strings.Contains(v.Text, tt.text) {
				t.Errorf("%q (%s), want %q with %q", v.Reason, v.Text, tt.want, tt.text)
			}
		})
	}
	if v := scheduler.New().Fit(want(t, pods["whole"]), "n00", noon()); v.Reason != scheduler.NoReport {
		t.Errorf("an unknown node: %q", v.Reason)
	}
	b := clusterStateOf(1, 2)
	b.Machine("n00", scheduler.Machine{Allocatable: map[string]int64{sharing.ResourceMemory: 39}})
	if v := b.Fit(want(t, pods["40GiB"]), "n00", noon()); v.Reason != scheduler.NotOffered {
		t.Errorf("a node that offers 39: %q", v.Reason)
	}
}

func TestHeartbeatCountsFromWhenItIsSeen(t *testing.T) {
	b := clusterStateOf(1, 1)
	w := want(t, podOf("p", memory(1)))
	at := func(s int) time.Time { return noon().Add(time.Duration(s) * time.Second) }
	reason := func(s int) scheduler.Reason { return b.Fit(w, "n00", at(s)).Reason }
	// The node's clock is an hour behind: a renewal counts from when it came.
	b.Heartbeat("n00", at(-3600), 40*time.Second, at(30))
	if got := reason(69); got != scheduler.Fits {
		t.Errorf("39 s after a renewal: %q", got)
	}
	b.Heartbeat("n00", at(-3600), 40*time.Second, at(69))
	if got := reason(71); got != scheduler.Stale {
		t.Errorf("the same renewal reported again: %q", got)
	}
	b.NoReport("n00")
	if got := reason(0); got != scheduler.NoReport {
		t.Errorf("without a report: %q", got)
	}
	// What is found at a start is as old as it says.
	fresh := scheduler.New()
	fresh.Machine("n00", machine())
	fresh.Report("n00", statusOf(0, 1))
	fresh.Heartbeat("n00", at(-100), 40*time.Second, at(0))
	if got := fresh.Fit(w, "n00", at(0)).Reason; got != scheduler.Stale {
		t.Errorf("an old Lease at the start: %q", got)
	}
}

// What a pod holds, from its reservation to the end of its claim.
func TestLifeOfAReservation(t *testing.T) {
	b := clusterStateOf(1, 1)
	first, second := podOf("first", memory(40)), podOf("second", memory(40))
	fits := func(s int) bool {
		return b.Fit(want(t, second), "n00", noon().Add(time.Duration(s)*time.Second)).Reason == scheduler.Fits
	}
	step := func(what string, s int, free bool) {
		t.Helper()
		if fits(s) != free {
			t.Errorf("%s: room %t, want %t", what, !free, free)
		}
	}
	step("before", 0, true)
	plan, err := b.Reserve(want(t, first), "n00", noon())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"scheduling.kerf.dev/main": uuid(0, 0)}, scheduler.Annotations(plan)); d != "" {
		t.Errorf("plan (-want +got):\n%s", d)
	}
	step("reserved", 0, false)
	b.Unreserve("first")
	step("given back", 0, true)
	if _, err := b.Reserve(want(t, first), "n00", noon()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reserve(want(t, second), "n00", noon()); !errors.Is(err, sharing.ErrExhausted) {
		t.Errorf("the second: %v", err)
	}
	first.Node = "n00"
	b.Pod(first, want(t, first), noon())
	b.Unreserve("first") // late: it is bound
	step("bound", 0, false)
	if _, err := b.Reserve(want(t, first), "n00", noon()); !errors.Is(err, sharing.ErrConflict) {
		t.Errorf("reserved again: %v", err)
	}
	b.Report("n00", statusOf(0, 1))
	step("a report without it", 1, false)
	b.Report("n00", statusOf(0, 1, hold{uid: "first", gpu: 0, memory: 40}))
	step("reported", 2, false)
	b.Report("n00", statusOf(0, 1))
	step("a report that forgot a pod that lives", 3, false)
	b.Report("n00", statusOf(0, 1, hold{uid: "first", gpu: 0, memory: 40}))
	first.Terminal = true
	b.Pod(first, want(t, first), noon().Add(4*time.Second))
	step("ended, and its grant stands", 4, false)
	b.Report("n00", statusOf(0, 1))
	step("its grant ended", 5, true)
}

// A pod that went before its node said anything of it is held until the node has had the time to.
func TestGoneBeforeReported(t *testing.T) {
	b := clusterStateOf(1, 1)
	at := func(s int) time.Time { return noon().Add(time.Duration(s) * time.Second) }
	p := podOf("first", memory(40))
	p.Node = "n00"
	b.Pod(p, want(t, p), at(0))
	b.PodRemoved("first", at(1))
	other := want(t, podOf("second", memory(40)))
	for _, tt := range []struct {
		beat int
		want scheduler.Reason
	}{{2, scheduler.LacksCapacity}, {5, scheduler.LacksCapacity}, {6, scheduler.Fits}} {
		b.Heartbeat("n00", at(tt.beat), 40*time.Second, at(tt.beat))
		if got := b.Fit(other, "n00", at(tt.beat)).Reason; got != tt.want {
			t.Errorf("heartbeat at %d s: %q, want %q", tt.beat, got, tt.want)
		}
	}
}

// The same name with another UID is another pod: what the first held stays the first's.
func TestRecreatedUnderTheSameName(t *testing.T) {
	b := clusterStateOf(1, 1)
	old, young := podOf("a", memory(40)), podOf("b", memory(40))
	young.Name = old.Name
	if _, err := b.Reserve(want(t, old), "n00", noon()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reserve(want(t, young), "n00", noon()); !errors.Is(err, sharing.ErrExhausted) {
		t.Errorf("next to the old: %v", err)
	}
	b.Unreserve("a")
	if _, err := b.Reserve(want(t, young), "n00", noon()); err != nil {
		t.Error(err)
	}
	b.PodRemoved("a", noon())
	b.Unreserve("a")
	if got := b.Fit(want(t, old), "n00", noon()).Reason; got != scheduler.LacksCapacity {
		t.Errorf("after the old is gone again: %q", got)
	}
}

// The report counts, whatever the annotation says.
func TestForgedPlacement(t *testing.T) {
	free := func(b *scheduler.ClusterState, gpu int) bool {
		w := want(t, podOf("probe", memory(40), "kerf.dev/gpu-uuid", uuid(0, gpu)))
		return b.Fit(w, "n00", noon()).Reason == scheduler.Fits
	}
	forged := func(value string) sharing.Pod {
		p := podOf("forger", memory(60), "scheduling.kerf.dev/main", value)
		p.Node = "n00"
		return p
	}
	t.Run("the report says another", func(t *testing.T) {
		b := clusterStateOf(1, 2)
		p := forged(uuid(0, 1))
		b.Pod(p, want(t, p), noon())
		b.Report("n00", statusOf(0, 2, hold{uid: "forger", gpu: 0, memory: 60}))
		if free(b, 0) || !free(b, 1) {
			t.Error("the annotation counted more than the report")
		}
	})
	for name, value := range map[string]string{"no GPU of this node": uuid(7, 0), "no UUID": "x", "two": uuid(0, 0) +
		"," + uuid(0, 1)} {
		t.Run(name, func(t *testing.T) {
			b := clusterStateOf(1, 2)
			p := forged(value)
			b.Pod(p, want(t, p), noon())
			if free(b, 0) == free(b, 1) {
				t.Error("it is not booked on one GPU")
			}
		})
	}
	t.Run("a reservation made here counts more", func(t *testing.T) {
		b := clusterStateOf(1, 2)
		p := forged(uuid(0, 1))
		w := want(t, podOf("forger", memory(60), "kerf.dev/gpu-uuid", uuid(0, 0)))
		if _, err := b.Reserve(w, "n00", noon()); err != nil {
			t.Fatal(err)
		}
		b.Pod(p, want(t, p), noon())
		if free(b, 0) || !free(b, 1) {
			t.Error("the annotation moved the reservation")
		}
	})
	t.Run("onto a GPU that is full", func(t *testing.T) {
		b := clusterStateOf(1, 2)
		b.Report("n00", statusOf(0, 2, hold{uid: "x", gpu: 0, memory: 70}))
		p := forged(uuid(0, 0))
		b.Pod(p, want(t, p), noon())
		if free(b, 1) {
			t.Error("it will be put on GPU 1, and that is not booked")
		}
	})
}

// Another scheduler bound it: the node chooses, and the cluster state predicts that.
func TestBoundWithoutAPlan(t *testing.T) {
	b := clusterStateOf(1, 1)
	p := podOf("foreign", memory(60))
	p.Node = "n00"
	b.Pod(p, want(t, p), noon())
	if got := b.Fit(want(t, podOf("second", memory(40))), "n00", noon()).Reason; got != scheduler.LacksCapacity {
		t.Errorf("next to it: %q", got)
	}
}

func TestGPULostWhileReserved(t *testing.T) {
	b := clusterStateOf(1, 2)
	w := want(t, podOf("first", memory(60), "kerf.dev/gpu-uuid", uuid(0, 0)+","+uuid(0, 1)))
	if _, err := b.Reserve(w, "n00", noon()); err != nil {
		t.Fatal(err)
	}
	s := statusOf(0, 2)
	s.GPUs[0].Health, s.GPUs[0].FreeBytes, s.GPUs[0].FreePercent = "lost", 0, 0
	b.Report("n00", s)
	if got := b.Fit(want(t, podOf("second", memory(40))), "n00", noon()).Reason; got != scheduler.LacksCapacity {
		t.Errorf("the node will put the first on the GPU that is left: %q", got)
	}
}

func TestInitContainersUseWhatFollows(t *testing.T) {
	p := sharing.Pod{UID: "p", Namespace: "ns", Name: "p", Containers: []sharing.PodContainer{
		{Name: "large", Kind: sharing.ContainerInit, Limits: memory(40)},
		{Name: "small", Kind: sharing.ContainerInit, Limits: memory(10)},
		{Name: "side", Kind: sharing.ContainerSidecar, Limits: memory(5)},
		{Name: "main", Limits: memory(20)},
	}}
	b := clusterStateOf(1, 1)
	w := want(t, p)
	plan, err := b.Reserve(w, "n00", noon())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range plan {
		got = append(got, c.Container)
	}
	if d := cmp.Diff([]string{"side", "main", "large"}, got); d != "" {
		t.Errorf("who gets a placement (-want +got):\n%s", d)
	}
	if w.Limits[sharing.ResourceMemory] != 40 {
		t.Errorf("units: %d", w.Limits[sharing.ResourceMemory])
	}
}

func TestProfilesComeFromTheConfig(t *testing.T) {
	c, err := config.New(config.Spec{
		Profiles: []config.Profile{{Name: "small", Memory: 30 * sharing.GiB, GPUs: 1}},
		Pools: []config.Pool{{Name: "default", MinLevel: sharing.LevelUserspace,
			Backends: []sharing.Backend{sharing.BackendDriver}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := clusterStateOf(1, 1)
	b.Configure(c)
	b.Report("n00", statusOf(0, 1, hold{uid: "x", gpu: 0, memory: 50}))
	p := podOf("p", memory(20), "kerf.dev/profile", "small")
	if v := b.Fit(want(t, p), "n00", noon()); v.Reason != scheduler.Fits {
		t.Errorf("20 of 29 GiB: %q (%s)", v.Reason, v.Text)
	}
	s := statusOf(0, 1)
	s.GPUs[0].Levels = []string{"reactive"}
	b.Report("n00", s)
	if v := b.Fit(want(t, p), "n00", noon()); v.Reason != scheduler.LacksLevel {
		t.Errorf("a pool that demands client: %q (%s)", v.Reason, v.Text)
	}
}
