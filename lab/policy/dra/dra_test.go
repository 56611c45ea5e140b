// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// TestAllocate: a share goes to a shared GPU before an empty one, in the order of the index. A whole GPU is an empty
// one. Two shares are of two GPUs. The order knows no amounts, so a tighter GPU may come later.
func TestAllocate(t *testing.T) {
	for _, tc := range []struct {
		free  []cluster.Milli
		gpus  int
		share cluster.Milli
		want  []int
	}{
		{[]cluster.Milli{1000, 1000}, 1, 300, []int{0}},
		{[]cluster.Milli{1000, 700, 400}, 1, 300, []int{1}},
		{[]cluster.Milli{1000, 200, 400}, 1, 300, []int{2}},
		{[]cluster.Milli{1000, 200, 0}, 1, 300, []int{0}},
		{[]cluster.Milli{299, 200, 0}, 1, 300, nil},
		{[]cluster.Milli{1000, 999, 1}, 1, 1, []int{1}},
		{[]cluster.Milli{999, 1000, 1000}, 1, 1000, []int{1}},
		{[]cluster.Milli{999, 1000, 1000}, 2, 1000, []int{1, 2}},
		{[]cluster.Milli{999, 1000, 1000}, 3, 1000, nil},
		{[]cluster.Milli{1000, 500, 300}, 2, 400, []int{0, 1}},
		{nil, 1, 1, nil},
	} {
		got, err := newAllocator().allocate(tc.free, cluster.Shape{GPUs: tc.gpus, Share: tc.share})
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%+v: %v, %v", tc, got, err)
		}
	}
}

// TestKept: an answer that is kept is what the allocator answers, and it fits if and only if the cluster says so.
func TestKept(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	kept := newAllocator()
	for range 400 {
		n := cluster.Node{Name: "n", Memory: sharing.TiB}
		for range 1 + draw.IntN(5) {
			n.GPUs = append(n.GPUs, []cluster.Milli{0, 1000, cluster.Milli(draw.IntN(1001))}[draw.IntN(3)])
		}
		s := cluster.Shape{GPUs: 1 + draw.IntN(2), Share: cluster.WholeGPU}
		if draw.IntN(3) > 0 {
			s.Share = cluster.Milli(1 + draw.IntN(999))
		}
		got, err := kept.gpus(&n, s)
		want, err2 := newAllocator().allocate(n.GPUs, s)
		fits := cluster.Evaluate(&n, cluster.Request{Shape: s}) == cluster.Fits
		if err != nil || err2 != nil || !slices.Equal(got, want) || fits != (len(got) > 0) {
			t.Fatalf("%v, %+v: %v, %v; asked again %v, %v; fits %t", n.GPUs, s, got, err, want, err2, fits)
		}
	}
}

// TestClasses: the device classes are those of the chart.
func TestClasses(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/variants/dra.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Classes() {
		if !strings.Contains(string(text), "  name: "+c.Name+"\n") ||
			!strings.Contains(string(text), "        "+c.Spec.Selectors[0].CEL.Expression+"\n") {
			t.Errorf("%s has another selector than %q", c.Name, c.Spec.Selectors[0].CEL.Expression)
		}
	}
}

func TestToFind(t *testing.T) {
	for nodes, want := range map[int]int{3: 3, 99: 99, 100: 100, 200: 100, 1213: 497, 5000: 500, 20000: 1000} {
		if got := toFind(nodes); got != want {
			t.Errorf("of %d nodes: %d, want %d", nodes, got, want)
		}
	}
}

// TestFirstFitGoesOn: with many nodes, FirstFit looks for 100, and for the next pod from where it stopped.
func TestFirstFitGoesOn(t *testing.T) {
	f := &FirstFit{devices: newAllocator()}
	node := cluster.Node{CPU: 8000, GPUs: []cluster.Milli{1000}}
	c := cluster.New(slices.Repeat([]cluster.Node{node}, 150), f)
	for _, want := range []int{100, 50, 0} {
		_, ok := c.Choose(cluster.Request{Shape: cluster.Shape{CPU: 1000, GPUs: 1, Share: 500}})
		if !ok || f.next != want {
			t.Errorf("%t: the next node is %d, want %d", ok, f.next, want)
		}
	}
	if _, ok := c.Choose(cluster.Request{Shape: cluster.Shape{CPU: 9000}}); ok || f.next != 0 {
		t.Errorf("a pod that does not fit: %t, the next node is %d", ok, f.next)
	}
}

// TestPoints are the points of a node by hand. With both resources, 75% and 50% are free afterwards, 62% on average.
// The balance falls from 100 to 87. A node without an amount of memory has points for CPU alone.
func TestPoints(t *testing.T) {
	c := cluster.New([]cluster.Node{{CPU: 8000, Memory: 8 * sharing.GiB}, {CPU: 8000}}, cluster.Spread{})
	r := cluster.Request{Memory: 4 * sharing.GiB, Shape: cluster.Shape{CPU: 2000}}
	for i, want := range []int64{62 + 50 + (50+87-100)/2, 75 + 50 + 50/2} {
		if got := points(c.Node(i), r); got != want {
			t.Errorf("node %d: %d, want %d", i, got, want)
		}
	}
}

// filled are the placements of pods by a policy.
func filled(t *testing.T, name string, nodes []cluster.Node, usual, pods []simulate.Pod) (out []string) {
	t.Helper()
	p, err := New(name, nodes, usual, 3)
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.New(nodes, p)
	for _, pod := range pods {
		where, ok := c.Choose(pod.Request)
		c.Learn(pod.Request)
		if !ok {
			continue
		}
		out = append(out, fmt.Sprint(where))
		if err := c.Take(pod.Request, where); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestPolicies: each policy fills a cluster in the same way twice.
func TestPolicies(t *testing.T) {
	nodes := slices.Repeat([]cluster.Node{{CPU: 40000, Memory: sharing.TiB, GPUs: []cluster.Milli{1000, 1000}}}, 6)
	var pods []simulate.Pod
	for i := range 40 {
		p := simulate.Pod{Request: cluster.Request{Shape: cluster.Shape{CPU: 1000, GPUs: 1,
			Share: []cluster.Milli{300, 700, 500, 1000}[i%4]}}}
		if i%10 == 0 {
			p.GPUs, p.Share = 2*(i%20/10), 1000
		}
		pods = append(pods, p)
	}
	for _, name := range Policies() {
		for _, usual := range [][]simulate.Pod{pods, nil} {
			a, b := filled(t, name, nodes, usual, pods), filled(t, name, nodes, usual, pods)
			if len(a) < 15 || !slices.Equal(a, b) {
				t.Errorf("%s: %v, then %v", name, a, b)
			}
		}
		if _, err := New(name, []cluster.Node{{Table: &mig.Table{}}}, nil, 1); err == nil {
			t.Errorf("%s takes GPUs in MIG mode", name)
		}
	}
	if _, err := New("none", nil, nil, 1); err == nil {
		t.Error("a policy without a name is known")
	}
}
