// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// Points are the loads, in percent of the capacity arrived, at which a run is measured.
func Points() []int { return []int{90, 95, 100, 110, 120, 130} }

// Policies are the names that NewPolicy knows.
func Policies() []string {
	return []string{"kerf", "fgd", "bestfit", "dotprod", "spread"}
}

// NewPolicy is the policy of that name, which knows the pods of the list as the usual workload.
func NewPolicy(name string, nodes []cluster.Node, pods []Pod) (cluster.Policy, error) {
	switch name {
	case "kerf":
		return cluster.NewKerf(workload(pods), nodes), nil
	case "fgd":
		return cluster.NewFGD(workload(pods)), nil
	case "bestfit":
		return cluster.BestFit{}, nil
	case "dotprod":
		return cluster.DotProd{}, nil
	case "spread":
		return cluster.Spread{}, nil
	}
	return nil, fmt.Errorf("policy %q: not one of %v", name, Policies())
}

func workload(pods []Pod) cluster.Workload {
	requests := make([]cluster.Request, len(pods))
	for i := range pods {
		requests[i] = pods[i].Request
	}
	return cluster.NewWorkload(requests)
}

// Result is one run, as it is printed in JSON.
type Result struct {
	Policy string `json:"policy"`
	Trace  string `json:"trace"`
	Seed   int64  `json:"seed"`
	// CapacityMilli and ArrivedMilli are thousandths of a GPU.
	CapacityMilli int64 `json:"capacity_gpu_milli"`
	ArrivedMilli  int64 `json:"arrived_gpu_milli"`
	// AllocatedPercent is of the capacity, by arrived percent; points that no load reached are missing.
	AllocatedPercent map[string]float64 `json:"allocated_percent"`
	// FragmentationPercent is of the idle GPU, by arrived percent.
	FragmentationPercent map[string]float64 `json:"fragmentation_percent"`
	// FirstFailurePercent is what had arrived when a pod was first refused; 0 when none was.
	FirstFailurePercent float64 `json:"first_failure_percent"`
	// Rejects counts refused pods by class: cpu-only, share, and the number of GPUs.
	Rejects map[string]int `json:"rejects"`
	// Decisions counts decisions per second.
	Decisions float64 `json:"decisions_per_second"`
}

type point struct {
	allocated, fragments float64
	rows                 int
}

// Run lets the arrivals come to the nodes. The usual pods say what a fragment is. Now is the clock by which
// the speed is taken.
func Run(nodes []cluster.Node, usual, arrivals []Pod, policy cluster.Policy, now func() time.Time) (Result, error) {
	c, w := cluster.New(nodes, policy), workload(usual)
	res := Result{Rejects: map[string]int{}, AllocatedPercent: map[string]float64{}, FragmentationPercent: map[string]float64{}}
	fragments, idle := int64(0), cluster.Milli(0)
	for i := range c.Len() {
		fragments += w.Fragments(c.Node(i))
		idle += c.Node(i).Free()
	}
	capacity := idle
	if capacity == 0 {
		return Result{}, fmt.Errorf("simulate: the nodes have no GPU")
	}
	points := map[int]*point{}
	arrived, deciding := cluster.Milli(0), time.Duration(0)
	for i := range arrivals {
		p := &arrivals[i]
		arrived += p.Demand()
		begin := now()
		place, ok := c.Choose(p.Request)
		deciding += now().Sub(begin)
		load := 100 * float64(arrived) / float64(capacity)
		if ok {
			fragments -= w.Fragments(c.Node(place.Node))
			if err := c.Take(p.Request, place); err != nil {
				return Result{}, fmt.Errorf("simulate pod %s: %w", p.Name, err)
			}
			fragments += w.Fragments(c.Node(place.Node))
			idle -= p.Demand()
		} else {
			res.Rejects[classOf(p.Request)]++
			if res.FirstFailurePercent == 0 {
				res.FirstFailurePercent = round(load)
			}
		}
		at := points[int(math.Round(load))]
		if at == nil {
			at = &point{}
			points[int(math.Round(load))] = at
		}
		at.rows++
		at.allocated += 100 * float64(capacity-idle) / float64(capacity)
		at.fragments += 100 * float64(fragments) / float64(w.Weight()) / float64(max(1, idle))
	}
	for at, sum := range points {
		if slices.Contains(Points(), at) {
			res.AllocatedPercent[strconv.Itoa(at)] = round(sum.allocated / float64(sum.rows))
			res.FragmentationPercent[strconv.Itoa(at)] = round(sum.fragments / float64(sum.rows))
		}
	}
	res.CapacityMilli, res.ArrivedMilli = int64(capacity), int64(arrived)
	if deciding > 0 {
		res.Decisions = math.Round(float64(len(arrivals)) / deciding.Seconds())
	}
	return res, nil
}

func classOf(r cluster.Request) string {
	switch {
	case r.GPUs == 0:
		return "cpu-only"
	case r.Share < cluster.WholeGPU:
		return "share"
	}
	return strconv.Itoa(r.GPUs)
}

func round(v float64) float64 { return math.Round(v*100) / 100 }
