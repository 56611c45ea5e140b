// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	others "github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

func TestRefusalsSayWhatIsMissing(t *testing.T) {
	nodes := []cluster.Node{
		{Name: "small", CPU: 1500, Memory: 64 * sharing.GiB, Model: "A", GPUs: full(1), Level: sharing.LevelDriver},
		{Name: "tight", CPU: 8000, Memory: sharing.GiB, Model: "A", GPUs: full(1), Level: sharing.LevelDriver},
		{Name: "other", CPU: 8000, Memory: 64 * sharing.GiB, Model: "B", GPUs: full(1)},
		{Name: "plain", CPU: 8000, Memory: 64 * sharing.GiB},
		{Name: "weak", CPU: 8000, Memory: 64 * sharing.GiB, Model: "A", GPUs: full(1), Level: sharing.LevelNone},
		{Name: "full", CPU: 8000, Memory: 64 * sharing.GiB, Model: "A", GPUs: []cluster.Milli{310, 305},
			Level: sharing.LevelDriver},
		{Name: "sick", CPU: 8000, Memory: 64 * sharing.GiB, Model: "A", GPUs: full(1), Level: sharing.LevelDriver},
		{Name: "away", CPU: 8000, Memory: 64 * sharing.GiB, Model: "A", GPUs: full(1), Level: sharing.LevelDriver},
		{Name: "whole", CPU: 8000, Memory: 64 * sharing.GiB, Model: "A", GPUs: full(1), Level: sharing.LevelDriver,
			AllowedModes: cluster.WholeAlone},
		// A reason that waiting cannot remove comes before a temporary one.
		{Name: "never", CPU: 1500, Memory: sharing.GiB, Model: "B", GPUs: full(1)},
	}
	c := cluster.New(nodes, others.BestFit{})
	if err := c.Withhold(6, 0, true); err != nil {
		t.Fatal(err)
	}
	if err := c.Cordon(7, true); err != nil {
		t.Fatal(err)
	}
	r := ask(2000, 2*sharing.GiB, 1, 400, "A")
	r.Level = sharing.LevelDriver
	want := []cluster.Refusal{
		{"small", cluster.LacksCPU, "1.5 cores free, 2 requested"},
		{"tight", cluster.LacksMemory, "1GiB of memory free, 2GiB requested"},
		{"other", cluster.WrongModel, "GPUs are B, A requested"},
		{"plain", cluster.WrongModel, "GPUs are none, A requested"},
		{"weak", cluster.LacksLevel, "level is none, driver requested"},
		{"full", cluster.LacksCapacity, "best GPU has 31 % free, 40 % requested"},
		{"sick", cluster.Withheld, "its GPUs take nothing new"},
		{"away", cluster.IsCordoned, "takes nothing new"},
		{"whole", cluster.OtherMode, "GPUs are given whole alone, a part requested"},
		{"never", cluster.WrongModel, "GPUs are B, A requested"},
	}
	if diff := cmp.Diff(want, c.Refusals(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	two := ask(1, 1, 2, 305, "A")
	if got := c.Refusals(two); got[0].Text != "1 GPUs, 2 requested" {
		t.Errorf("got %+v", got[0])
	}
	two.Share = 307
	if got := c.Refusals(two); got[5].Text != "1 GPUs have 30.7 % free, 2 requested" {
		t.Errorf("got %+v", got)
	}
}

func TestWithheldGPUKeepsItsBooks(t *testing.T) {
	c := cluster.New([]cluster.Node{{CPU: 9000, GPUs: full(1)}}, others.BestFit{})
	r := ask(1000, 0, 1, 600, "")
	p, _ := c.Choose(r)
	if err := c.Take(r, p); err != nil {
		t.Fatal(err)
	}
	for _, withheld := range []bool{true, true} {
		if err := c.Withhold(0, 0, withheld); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := c.Choose(ask(0, 0, 1, 100, "")); ok {
		t.Error("a withheld GPU took a share")
	}
	c.Release(r, p)
	if n := c.Node(0); n.GPUs[0] != 0 || n.CPU != 9000 {
		t.Errorf("released: %+v", n)
	}
	if err := c.Withhold(0, 0, false); err != nil {
		t.Fatal(err)
	}
	if n := c.Node(0); n.GPUs[0] != cluster.WholeGPU {
		t.Errorf("back: %+v", n)
	}
	for _, err := range []error{c.Withhold(1, 0, true), c.Withhold(0, 1, true), c.Withhold(0, -1, true),
		c.Cordon(1, true), c.Cordon(-1, true)} {
		if err == nil {
			t.Error("what is not there was changed")
		}
	}
}

func TestWholeGPUsLieCloseTogether(t *testing.T) {
	place := func(link, numa, pcie int) cluster.Place { return cluster.Place{NVLink: link, NUMA: numa, PCIe: pcie} }
	pairs := []cluster.Place{place(0, 0, 0), place(1, 0, 0), place(1, 0, 1), place(0, 0, 1)}
	sockets := []cluster.Place{place(0, 0, 0), place(0, 1, 2), place(0, 0, 1), place(0, 1, 3), place(0, 0, 0),
		place(0, 1, 2)}
	tests := []struct {
		name     string
		topology []cluster.Place
		free     []cluster.Milli
		n        int
		want     []int
	}{
		{"unknown: lowest", nil, []cluster.Milli{1000, 1000, 1000, 1000}, 2, []int{0, 1}},
		{"NVLink pair", pairs, []cluster.Milli{1000, 1000, 1000, 1000}, 2, []int{0, 3}},
		{"the pair that is whole", pairs, []cluster.Milli{1000, 1000, 1000, 0}, 2, []int{1, 2}},
		{"a pair and one", pairs, []cluster.Milli{1000, 1000, 1000, 1000}, 3, []int{0, 1, 2}},
		{"a broken pair last", pairs, []cluster.Milli{0, 1000, 1000, 1000}, 3, []int{1, 2, 3}},
		{"one socket", sockets, []cluster.Milli{1000, 1000, 1000, 1000, 1000, 0}, 3, []int{0, 2, 4}},
		{"the smaller socket that is enough", sockets, []cluster.Milli{1000, 1000, 1000, 1000, 1000, 0}, 2,
			[]int{1, 3}},
		{"one switch", sockets, []cluster.Milli{1000, 0, 1000, 0, 1000, 0}, 2, []int{0, 4}},
		{"one GPU: the tightest", pairs, []cluster.Milli{1000, 1000, 900, 1000}, 1, []int{2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := cluster.New([]cluster.Node{{CPU: 9000, GPUs: tt.free, Topology: tt.topology}}, others.BestFit{})
			share := cluster.WholeGPU
			if tt.n == 1 {
				share = 900
			}
			p, ok := c.Choose(ask(1, 0, tt.n, share, ""))
			if diff := cmp.Diff(tt.want, p.GPUs); !ok || diff != "" {
				t.Errorf("%v (-want +got):\n%s", ok, diff)
			}
		})
	}
}

func TestShareIsWhatTheNodeBooks(t *testing.T) {
	nodes := []cluster.Node{
		{Name: "80", CPU: 9000, GPUs: full(1), GPUMemory: 80 * sharing.GiB},
		{Name: "mig", CPU: 9000, GPUs: full(1), GPUMemory: 80 * sharing.GiB, Table: slices8(t)},
		{Name: "unknown", CPU: 9000, GPUs: full(1)},
	}
	memory := func(gib sharing.Bytes) cluster.Request {
		return cluster.Request{Shape: cluster.Shape{GPUs: 1, GPUMemory: gib * sharing.GiB}}
	}
	for _, tt := range []struct {
		r    cluster.Request
		want [3]cluster.Milli // left on each node afterwards; -1 where it does not fit
	}{
		{memory(20), [3]cluster.Milli{750, 750, -1}},
		{memory(21), [3]cluster.Milli{737, 500, -1}},
		{memory(80), [3]cluster.Milli{0, 0, -1}},
		{memory(81), [3]cluster.Milli{-1, -1, -1}},
		{memory(1 << 33), [3]cluster.Milli{-1, -1, -1}},
		{ask(0, 0, 1, 142, ""), [3]cluster.Milli{858, 875, 858}},
		{ask(0, 0, 1, 143, ""), [3]cluster.Milli{857, 750, 857}},
		{cluster.Request{Shape: cluster.Shape{GPUs: 1, Share: 600, GPUMemory: 8 * sharing.GiB}},
			[3]cluster.Milli{400, 0, -1}},
	} {
		for i, n := range nodes {
			c := cluster.New([]cluster.Node{n}, others.HAMiBinpack{})
			p, ok := c.Choose(tt.r)
			if !ok {
				if tt.want[i] != -1 || len(c.Refusals(tt.r)) != 1 {
					t.Errorf("%s: %+v refused: %v", n.Name, tt.r, c.Refusals(tt.r))
				}
				continue
			}
			if err := c.Take(tt.r, p); err != nil {
				t.Errorf("%s: %v", n.Name, err)
			}
			if got := c.Node(0).Free(); got != tt.want[i] {
				t.Errorf("%s: %+v: %d left, want %d", n.Name, tt.r, got, tt.want[i])
			}
			c.Release(tt.r, p)
			if got := c.Node(0).Free(); got != cluster.WholeGPU {
				t.Errorf("%s: %d free in the end", n.Name, got)
			}
		}
	}
	// Seven instances of one slice fit a GPU, and no eighth.
	c := cluster.New(nodes[1:2], others.BestFit{})
	for i := range 8 {
		r := memory(10)
		p, ok := c.Choose(r)
		if ok != (i < 7) {
			t.Errorf("instance %d: %v", i, ok)
		}
		if ok {
			if err := c.Take(r, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if why := cluster.New(nodes[:1], others.BestFit{}).Refusals(
		memory(81)); why[0].Text != "GPUs have 80GiB of memory, 81GiB requested" {
		t.Errorf("%+v", why)
	}
}
