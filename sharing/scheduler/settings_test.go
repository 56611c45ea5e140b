// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// On an overcommitted GPU, plans go up to the ratio and not beyond. A pod whose memory no neighbor may take gets no
// such GPU.
func TestOvercommit(t *testing.T) {
	t.Parallel()
	b := clusterStateOf(1, 1)
	s := statusOf(0, 1)
	g := &s.GPUs[0]
	g.Overcommit = &gpunode.Overcommit{MemoryPercent: 150, ComputePercent: 200}
	g.FreeBytes, g.FreePercent = 118*gib, 200 // 1.5 times 79 GiB
	b.Report("n00", s)
	fits := func(uid string, limits map[string]string, annotations ...string) scheduler.Reason {
		t.Helper()
		w := want(t, podOf(uid, limits, annotations...))
		v := b.Fit(w, "n00", noon())
		if v.Reason == scheduler.Fits {
			if _, err := b.Reserve(w, "n00", noon()); err != nil {
				t.Fatal(err)
			}
		}
		return v.Reason
	}
	if got := fits("large", memory(80)); got != scheduler.TooSmall {
		t.Errorf("more than the GPU has, on one GPU: %v", got)
	}
	if got := fits("strict", memory(1), "kerf.dev/min-enforcement", "driver"); got != scheduler.LacksLevel {
		t.Errorf("a level that holds neighbours off: %v", got)
	}
	if got := fits("loose", memory(1), "kerf.dev/min-enforcement", "userspace"); got != scheduler.Fits {
		t.Errorf("a level that does not: %v", got)
	}
	for _, uid := range []string{"a", "b"} {
		if got := fits(uid, memory(50)); got != scheduler.Fits {
			t.Errorf("50 GiB for %s: %v", uid, got)
		}
	}
	if got := fits("c", memory(18)); got != scheduler.LacksCapacity {
		t.Errorf("119 GiB of 118: %v", got)
	}
	if got := fits("d", memory(17)); got != scheduler.Fits {
		t.Errorf("118 GiB of 118: %v", got)
	}
}

// GPUs of one node may have different levels. Each counts by its level, and by the least that its pool's rules demand
// of it.
func TestLevelsOfOneNode(t *testing.T) {
	t.Parallel()
	b := clusterStateOf(1, 3)
	s := statusOf(0, 3)
	s.GPUs[0].Levels, s.GPUs[1].Levels, s.GPUs[2].Levels = []string{"exclusive", "reactive"},
		[]string{"exclusive", "userspace"}, []string{"exclusive", "userspace"}
	s.GPUs[2].MinEnforcement = "driver"
	b.Report("n00", s)
	on := func(p sharing.Pod) string {
		t.Helper()
		v := b.Fit(want(t, p), "n00", noon())
		if v.Reason != scheduler.Fits {
			return v.Text
		}
		return v.Plan[0].Placement[0].GPU.String()
	}
	for _, tt := range []struct {
		pod  sharing.Pod
		want string
	}{
		{podOf("any", memory(1)), uuid(0, 0)},
		{podOf("held", memory(1), "kerf.dev/min-enforcement", "userspace"), uuid(0, 1)},
		{podOf("held more", memory(1), "kerf.dev/min-enforcement", "driver"),
			"a share here can be capped at level userspace at most, driver required"},
		{podOf("on the one that is ruled out", memory(1), "kerf.dev/gpu-uuid", uuid(0, 2)),
			"a share here can be capped at level userspace at most, and its pool's rules demand driver"},
		{podOf("over two that are held", memory(2), "kerf.dev/gpu-count", "2", "kerf.dev/min-enforcement", "userspace"),
			"a share here can be capped at level userspace at most, and its pool's rules demand driver"},
		{podOf("whole", whole(1), "kerf.dev/gpu-uuid", uuid(0, 2)), uuid(0, 2)},
	} {
		if got := on(tt.pod); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.pod.Name, got, tt.want)
		}
	}
	waits := want(t, podOf("waits", memory(1), "kerf.dev/gpu-uuid", uuid(0, 2)))
	if got := b.Explain(waits, noon()); !strings.Contains(got, "1 node lacks level driver") {
		t.Errorf("said of a pod that waits: %s", got)
	}
	full := statusOf(0, 3, hold{uid: "a", gpu: 1, memory: 70})
	for i := range full.GPUs {
		full.GPUs[i].Levels, full.GPUs[i].MinEnforcement = s.GPUs[i].Levels, s.GPUs[i].MinEnforcement
	}
	b.Report("n00", full)
	if got := b.Explain(want(t, podOf("waits for room", memory(20), "kerf.dev/min-enforcement", "userspace")),
		noon()); !strings.Contains(got, "best of 1 node has 9GiB free") {
		t.Errorf("said of a pod for which only one GPU will do: %s", got)
	}
	s.GPUs[2].Levels = []string{"exclusive", "driver"}
	b.Report("n00", s)
	if got := on(podOf("later", memory(1), "kerf.dev/gpu-uuid", uuid(0, 2))); got != uuid(0, 2) {
		t.Errorf("once it is held so strongly: %s", got)
	}
}

// A share that no backend enforces needs a pool or a profile that allows it. What the pod says does not.
func TestUnenforcedShares(t *testing.T) {
	t.Parallel()
	const remedy = "; set minEnforcement: none on the pool to grant shares without enforcement"
	pool := func(spec string) string {
		return "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools: [{name: default" + spec +
			"}]\n  profiles: [{name: lax, memory: 1GiB, minEnforcement: none}]\n"
	}
	plain, none := podOf("p", memory(1)), podOf("p", memory(1), "kerf.dev/min-enforcement", "none")
	for name, tt := range map[string]struct {
		config        string // none: the scheduler has none
		levels, least string
		health        string
		pod           sharing.Pod
		text          string // empty: it fits
	}{
		"none": {"", "exclusive,none", "", "", plain,
			"no backend enforces shares of this GPU (driver: too old)" + remedy},
		"unknown": {"", "exclusive,unknown", "", "", plain,
			"the enforcement level of its shares is unknown (driver: too old)" + remedy},
		"no levels": {"", "", "", "", plain,
			"the enforcement level of its shares is unknown (driver: too old)" + remedy},
		"reactive":              {"", "exclusive,reactive", "", "", plain, ""},
		"allowed by the report": {"", "exclusive,none", "none", "", plain, ""},
		"asked by the pod": {"", "exclusive,none", "", "", none,
			"no backend enforces shares of this GPU (driver: too old)" + remedy},
		"asked, with a config": {pool(""), "exclusive,none", "", "", none,
			"no backend enforces shares of this GPU (driver: too old)" + remedy},
		"allowed by the pool": {pool(", minEnforcement: none"), "exclusive,none", "none", "", plain, ""},
		"stricter pool": {pool(", minEnforcement: reactive"), "exclusive,none", "reactive", "", none,
			"a share here can be capped at level none at most, reactive required (driver: too old)"},
		"allowed by a profile": {pool(""), "exclusive,none", "", "", podOf("p", memory(1), "kerf.dev/profile", "lax"),
			""},
		"whole": {pool(""), "exclusive,none", "", "", podOf("p", whole(1)), ""},
		"lost":  {"", "", "", "lost", plain, "GPUs not healthy"},
	} {
		t.Run(name, func(t *testing.T) {
			b := clusterStateOf(1, 1)
			if tt.config != "" {
				c, err := config.Decode([]byte(tt.config))
				if err != nil {
					t.Fatal(err)
				}
				b.Configure(c)
			}
			s := statusOf(0, 1)
			s.GPUs[0].Levels, s.GPUs[0].LevelReason, s.GPUs[0].MinEnforcement = nil, "driver: too old", tt.least
			if tt.levels != "" {
				s.GPUs[0].Levels = strings.Split(tt.levels, ",")
			}
			s.GPUs[0].Health = cmp.Or(tt.health, s.GPUs[0].Health)
			b.Report("n00", s)
			if v := b.Fit(want(t, tt.pod), "n00", noon()); v.Text != tt.text ||
				(v.Reason == scheduler.Fits) != (tt.text == "") {
				t.Errorf("%v: %q, want %q", v.Reason, v.Text, tt.text)
			}
		})
	}
}

// What an agent says of its GPUs' settings counts for plans, too: one that is planned counts as a sharer.
func TestSettings(t *testing.T) {
	t.Parallel()
	b := clusterStateOf(1, 3)
	s := statusOf(0, 3, hold{uid: "a", gpu: 0, memory: 1})
	s.GPUs[0].MaxShares, s.GPUs[1].Mode, s.GPUs[2].Mode = 2, "whole", "nothing"
	b.Report("n00", s)
	fits := func(p sharing.Pod) (scheduler.Verdict, bool) {
		t.Helper()
		v := b.Fit(want(t, p), "n00", noon())
		return v, v.Reason == scheduler.Fits
	}
	first := podOf("b", memory(1))
	if v, ok := fits(first); !ok || v.Plan[0].Placement[0].GPU.String() != uuid(0, 0) {
		t.Fatalf("the second sharer: %+v", v)
	}
	if _, err := b.Reserve(want(t, first), "n00", noon()); err != nil {
		t.Fatal(err)
	}
	if v, ok := fits(podOf("c", memory(1))); ok || v.Reason != scheduler.LacksCapacity {
		t.Errorf("the third sharer: %+v", v)
	}
	if v, ok := fits(podOf("d", whole(1))); !ok || v.Plan[0].Placement[0].GPU.String() != uuid(0, 1) {
		t.Errorf("a whole GPU: %+v", v)
	}
	if v, ok := fits(podOf("e", whole(2))); ok {
		t.Errorf("two whole GPUs: %+v", v)
	}
}
