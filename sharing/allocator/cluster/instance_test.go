// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	others "github.com/kerf-gpu/kerf/lab/policy"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// slices8 is the geometry of GPUs of 80 GiB with seven compute and eight memory slices.
func slices8(t testing.TB) *mig.Table {
	t.Helper()
	var list []mig.Profile
	for id, p := range []mig.Profile{
		{Name: "1g.10gb", Compute: 1, Size: 1, MaxInstances: 7, Starts: []int{0, 1, 2, 3, 4, 5, 6}},
		{Name: "1g.20gb", Compute: 1, Size: 2, MaxInstances: 4, Starts: []int{0, 2, 4, 6}},
		{Name: "2g.20gb", Compute: 2, Size: 2, MaxInstances: 3, Starts: []int{0, 2, 4}},
		{Name: "3g.40gb", Compute: 3, Size: 4, MaxInstances: 2, Starts: []int{0, 4}},
		{Name: "4g.40gb", Compute: 4, Size: 4, MaxInstances: 1, Starts: []int{0}},
		{Name: "7g.80gb", Compute: 7, Size: 8, MaxInstances: 1, Starts: []int{0}},
	} {
		p.ID, p.Memory = id, 10*sharing.GiB*sharing.Bytes(p.Size)
		list = append(list, p)
	}
	table, err := mig.NewTable(list)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func profile(name string) cluster.Request {
	return cluster.Request{Shape: cluster.Shape{CPU: 100, GPUs: 1, Profile: name}}
}

func migNodes(t testing.TB, count, gpus int) []cluster.Node {
	table := slices8(t)
	var nodes []cluster.Node
	for range count {
		nodes = append(nodes, cluster.Node{CPU: 1_000_000, Memory: sharing.TiB, Model: "H", GPUs: full(gpus),
			Table: table})
	}
	return nodes
}

// The naive model remembers the instances of each GPU, and checks each time whether they fit together.
func TestInstancesAreThoseOfANaiveModel(t *testing.T) {
	nodes := append(migNodes(t, 3, 2), cluster.Node{CPU: 90_000, Memory: sharing.TiB, Model: "H", GPUs: full(2)})
	table := nodes[0].Table
	names := []string{"1g.10gb", "1g", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", ">= 15GiB"}
	var sample []cluster.Request
	for _, n := range names {
		sample = append(sample, profile(n))
	}
	for name, policy := range map[string]cluster.Policy{
		"kerf": cluster.NewKerf(cluster.NewWorkload(sample), nodes), "online": cluster.NewOnline(nodes),
		"fgd":     others.NewFGD(cluster.NewWorkload(sample)),
		"bestfit": others.BestFit{}, "spread": cluster.Spread{}, "random": others.NewRandom(3),
		"packing": others.Packing{},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(*seed, 17))
			c := cluster.New(nodes, policy)
			var holds []held
			refused := 0
			for step := range *steps / 25 {
				q := profile(names[r.IntN(len(names))])
				if r.IntN(4) == 0 {
					q = ask(100, 0, 1, cluster.Milli(50+r.IntN(900)), "")
				}
				c.Learn(q)
				p, ok := c.Choose(q)
				if !ok {
					refused++
					if fitsAnywhere(t, nodes, holds, table, q) {
						t.Fatalf("step %d: %+v refused, and there is a place", step, q)
					}
				} else if err := c.Take(q, p); err != nil {
					t.Fatalf("step %d: %v", step, err)
				} else {
					holds = append(holds, held{q, p})
				}
				checkFree(t, c, nodes, holds, table)
				for len(holds) > 0 && r.IntN(100) < 40 {
					i := r.IntN(len(holds))
					c.Release(holds[i].request, holds[i].placement)
					holds = slices.Delete(holds, i, i+1)
				}
			}
			if refused < 20 && *steps >= 10_000 {
				t.Errorf("%d refused: the cluster was never full", refused)
			}
		})
	}
}

// wanted is the profile that answers the request: the smallest that holds it.
func wanted(t *testing.T, table *mig.Table, q cluster.Request) mig.Profile {
	t.Helper()
	if q.Profile != "" {
		p, err := table.Lookup("profile", q.Profile)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, p := range table.Profiles() {
		if cluster.Milli(p.Compute*1000) >= q.Share*7 {
			return p
		}
	}
	t.Fatalf("%+v: no profile", q)
	return mig.Profile{}
}

// instances are those of each GPU in MIG mode, by node and GPU.
func instances(t *testing.T, nodes []cluster.Node, holds []held, table *mig.Table) map[[2]int][]mig.Place {
	t.Helper()
	out := map[[2]int][]mig.Place{}
	for _, h := range holds {
		if nodes[h.placement.Node].Table != nil {
			at := [2]int{h.placement.Node, h.placement.GPUs[0]}
			out[at] = append(out[at], mig.Place{Profile: wanted(t, table, h.request).ID, Start: h.placement.Starts[0]})
		}
	}
	return out
}

func fitsAnywhere(t *testing.T, nodes []cluster.Node, holds []held, table *mig.Table, q cluster.Request) bool {
	t.Helper()
	there := instances(t, nodes, holds, table)
	plain := map[int]cluster.Milli{}
	for _, h := range holds {
		if nodes[h.placement.Node].Table == nil {
			plain[h.placement.GPUs[0]] += h.request.Share
		}
	}
	for i := range nodes {
		for g := range nodes[i].GPUs {
			if nodes[i].Table == nil {
				if q.Profile == "" && plain[g]+q.Share <= cluster.WholeGPU {
					return true
				}
				continue
			}
			p := wanted(t, table, q)
			for _, start := range p.Starts {
				if _, err := table.Occupy(append(slices.Clone(there[[2]int{i, g}]),
					mig.Place{Profile: p.ID, Start: start})); err == nil {
					return true
				}
			}
		}
	}
	return false
}

// checkFree compares the free units with the instances that have the rest.
func checkFree(t *testing.T, c *cluster.Cluster, nodes []cluster.Node, holds []held, table *mig.Table) {
	t.Helper()
	there := instances(t, nodes, holds, table)
	for i := range nodes {
		for g := range nodes[i].GPUs {
			if nodes[i].Table == nil {
				continue
			}
			o, err := table.Occupy(there[[2]int{i, g}])
			if err != nil {
				t.Fatalf("node %d, GPU %d: %v", i, g, err)
			}
			if want := cluster.Milli(125 * (8 - o.Taken.Count())); c.Node(i).GPUs[g] != want {
				t.Fatalf("node %d, GPU %d: %d free, want %d", i, g, c.Node(i).GPUs[g], want)
			}
		}
	}
}

func TestInstanceIsRefusedWithReason(t *testing.T) {
	nodes := append(migNodes(t, 1, 1), cluster.Node{Name: "plain", CPU: 9000, Model: "H", GPUs: full(1)})
	c := cluster.New(nodes, others.BestFit{})
	all := nodes[0].Table.Names()
	for _, tt := range []struct{ ask, why string }{
		{"5g.99gb", "1: GPUs have no MIG profile 5g.99gb: write one of " + all +
			"; 1: GPUs are not in MIG mode, 5g.99gb requested"},
		{"7g.80gb", "1: GPUs are not in MIG mode, 7g.80gb requested; 1: fits"},
	} {
		if got := refused(c, profile(tt.ask)); got != tt.why {
			t.Errorf("%s: %s, want %s", tt.ask, got, tt.why)
		}
	}
	for _, p := range []cluster.Placement{{GPUs: []int{0}}, {GPUs: []int{0}, Starts: []int{1}},
		{Node: 1, GPUs: []int{0}, Starts: []int{0}}} {
		if err := c.Take(profile("3g.40gb"), p); err == nil {
			t.Errorf("%+v was taken", p)
		}
	}
	// Two of 1g.20gb at 2 and 6: half of the GPU is free, and no 3g fits.
	for _, start := range []int{2, 6} {
		if err := c.Take(profile("1g.20gb"), cluster.Placement{GPUs: []int{0}, Starts: []int{start}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.Refusals(profile("3g.40gb")); got[0].Text != "fragmented: 3g.40gb takes 4 of 8 memory units from "+
		"0,4; 4 are free (0-1,4-5)" {
		t.Errorf("%+v", got[0])
	}
	r := profile("1g.10gb")
	r.Level = sharing.LevelHardware
	if p, ok := c.Choose(r); !ok || p.Node != 0 {
		t.Errorf("an instance is of level hardware: %v %v", p, ok)
	}
	if p, ok := c.Place(r, 0, []int{0}); !ok || len(p.Starts) != 1 {
		t.Errorf("%v %v", p, ok)
	}
	if _, ok := c.Place(profile("4g.40gb"), 0, []int{0}); ok {
		t.Error("a place for 4g, where there is none")
	}
}

// Of three holders, the two that leave adjacent units free go, and not a cheaper one that leaves separate units.
func TestPreemptMakesRoomForAnInstance(t *testing.T) {
	holder := func(name, ask string, cost int64, start int) cluster.VictimCandidate {
		return cluster.VictimCandidate{Pod: name, Priority: 1, Cost: cost,
			Grants: []cluster.Grant{{Request: profile(ask), GPUs: []int{0}, Starts: []int{start}}}}
	}
	holders := []cluster.VictimCandidate{holder("a", "2g.20gb", 9, 0), holder("b", "2g.20gb", 1, 4),
		holder("c", "1g.20gb", 1, 2), holder("d", "1g.10gb", 9, 6)}
	c := cluster.New(migNodes(t, 1, 1), others.BestFit{})
	for _, h := range holders {
		if err := c.Take(h.Grants[0].Request, cluster.Placement{GPUs: []int{0},
			Starts: h.Grants[0].Starts}); err != nil {
			t.Fatal(err)
		}
	}
	p, ok := c.Preempt(profile("4g.40gb"), 5, holders)
	if !ok || !slices.Equal(p.Victims, []int{0, 2}) {
		t.Fatalf("%v %+v", ok, p)
	}
	for _, i := range p.Victims {
		c.Release(holders[i].Grants[0].Request, cluster.Placement{GPUs: []int{0}, Starts: holders[i].Grants[0].Starts})
	}
	if err := c.Take(profile("4g.40gb"), p.Placement); err != nil {
		t.Errorf("%v after %v left", err, p.Victims)
	}
}
