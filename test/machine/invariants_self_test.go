// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"strings"
	"testing"
)

// sound is a picture without contradiction: two GPUs, a share on the first.
func sound() picture {
	used, zero, hard, low := 3*gib, uint64(0), 4*gib, least
	return picture{
		status: status{
			GPUs: []gpu{
				{UUID: "A", Index: 0, Memory: 16 * gib, Reserved: gib, Used: &used, Granted: 4 * gib,
					Health: "healthy"},
				{UUID: "B", Index: 1, Memory: 16 * gib, Reserved: gib, Used: &zero, Health: "healthy"},
			},
			Grants: []grant{{
				ID: "k-1", GPUs: []string{"A"}, Memory: 4 * gib, Level: "driver", Backend: "driver", Cgroup: "/c/k-1",
				PIDs:   []int{7},
				Shares: []fragment{{GPU: "A", Memory: 4 * gib, Used: &used}},
			}},
		},
		processes: []simProcess{{PID: 7, Cgroup: "/c/k-1/child", GPU: "A", Bytes: 3 * gib}},
		limits: []simLimit{{Cgroup: "/c/k-1", GPU: "A", Hard: &hard, Used: 3 * gib},
			{Cgroup: "/c/k-1", GPU: "B", Hard: &low}},
		cgroups: []string{"/c/k-1"},
		caps:    map[[2]string]uint64{{"k-1", "A"}: 4 * gib},
	}
}

// A check that never finds anything would let every test pass.
func TestInvariantsFindContradictions(t *testing.T) {
	t.Parallel()
	if f := judge(sound(), true); len(f.broken)+len(f.passing) > 0 {
		t.Fatalf("a sound picture: %+v", f)
	}
	tests := map[string]struct {
		spoil func(*picture)
		want  string
	}{
		"too much granted": {func(p *picture) {
			p.status.Grants[0].Memory, p.status.Grants[0].Shares[0].Memory = 16*gib, 16*gib
		}, "16106127360"},
		"granted_bytes": {func(p *picture) { p.status.GPUs[1].Granted = 1 }, "grantedBytes 1"},
		"two holders of a whole GPU": {func(p *picture) {
			g := p.status.Grants[0]
			g.ID, g.Shares = "k-2", []fragment{{GPU: "A", Whole: true, Memory: 4 * gib}}
			p.status.Grants = append(p.status.Grants, g)
		}, "given whole"},
		"no limit":       {func(p *picture) { p.limits = p.limits[1:] }, "limit on GPU 0 is 0"},
		"limit too high": {func(p *picture) { *p.limits[0].Hard++ }, "limit on GPU 0 is 4294967297"},
		"soft limit":     {func(p *picture) { p.limits[0].Soft = 1 }, "soft limit of 1"},
		"no least limit": {func(p *picture) { p.limits = p.limits[:1] }, "limit on GPU 1 is 0"},
		"limit of no one": {func(p *picture) {
			p.limits = append(p.limits,
				simLimit{Cgroup: "/c/k-9", GPU: "A", Hard: new(uint64)})
		}, "no living grant"},
		"cgroup of no one": {func(p *picture) { p.cgroups = append(p.cgroups, "/c/k-9") }, "no grant's"},
		"no cgroup":        {func(p *picture) { p.cgroups = nil }, "not there"},
		"over the cap":     {func(p *picture) { p.processes[0].Bytes = 5 * gib }, "its cap is"},
		"over the cap and not reported": {func(p *picture) {
			p.processes[0].Bytes, p.status.Grants[0].Level = 5*gib, "reactive"
			p.status.Warnings = []string{"grant k-9 holds more than its 4GiB"}
		}, "no warning tells it"},
		"on another's GPU":        {func(p *picture) { p.processes[0].GPU = "B" }, "not its own"},
		"pid not reported":        {func(p *picture) { p.status.Grants[0].PIDs = []int{8} }, "not among its pids"},
		"use of the GPU is wrong": {func(p *picture) { *p.status.GPUs[1].Used = 5 }, "used_bytes 5"},
		"use not known":           {func(p *picture) { p.status.GPUs[1].Used = nil }, "not known"},
		"metric is wrong": {func(p *picture) { p.caps[[2]string{"k-1", "A"}] = 1 },
			"metrics: the cap of grant k-1 on GPU A is 1"},
		"metric is absent": {func(p *picture) { clear(p.caps) }, "exposed: false"},
		"metric of no one": {func(p *picture) { p.caps[[2]string{"k-9", "A"}] = 1 }, "metrics: cap of"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := sound()
			tt.spoil(&p)
			f := judge(p, true)
			if all := strings.Join(append(f.broken, f.passing...), "\n"); !strings.Contains(all, tt.want) {
				t.Errorf("found %q, want %q", all, tt.want)
			}
		})
	}
}
