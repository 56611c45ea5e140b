// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// twoNUMANodes shows kubelet a machine of two NUMA nodes, which is what the simulated GPUs hang at, whatever this
// machine has: in the node another folder lies over the one in which the kernel tells of them. It does so until the
// test ends.
func (e *testCase) twoNUMANodes() {
	e.Helper()
	const nodes = "/sys/devices/system/node"
	e.Cleanup(func() { e.node.in("umount", nodes) })
	// CPUs by turns; one that is alone is of node 0.
	e.onNode(`mount -t tmpfs numa "$1" && cd "$1" && mkdir node0 node1 && n=0
		for cpu in /sys/devices/system/cpu/cpu[0-9]*; do ln -s "$cpu" node$((n % 2))/; n=$((n + 1)); done
		for n in 0 1; do
			echo "Node $n MemTotal:       16777216 kB" >node$n/meminfo
			if [ $n = 0 ]; then echo 10 20; else echo 20 10; fi >node$n/distance
		done`, nodes)
}

// kubeletWith adds lines to kubelet's configuration and starts it again with them; the end of the test takes them out.
func (e *testCase) kubeletWith(lines string) {
	e.Helper()
	config := filepath.Join(e.node.env["CONF"], "kubelet.yaml")
	shipped, err := os.ReadFile(config)
	if err != nil {
		e.Fatal(err)
	}
	use := func(text string) {
		e.Helper()
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			e.Fatal(err)
		}
		e.node.restart(e.T, "kubelet")
		e.waitForAgent()
	}
	e.Cleanup(func() { use(string(shipped)) })
	use(string(shipped) + lines)
}

// numaOf is the NUMA node of each GPU, as the simulated machine has it.
func (e *testCase) numaOf() map[string]int {
	e.Helper()
	of := map[string]int{}
	for _, g := range e.picture().GPUs {
		of[g.UUID] = g.NUMA
	}
	return of
}

// Where kubelet's topology manager wants all of a container on one NUMA node, it chooses the node by the ids of whole
// GPUs and the agent gives GPUs of that node, also where it would choose others by itself. What fits no one node is
// refused by kubelet, as its users know it.
func TestTopologyManager(t *testing.T) {
	e := beginWithAgent(t)
	e.twoNUMANodes()
	e.kubeletWith("topologyManagerPolicy: single-numa-node\n")
	numa := e.numaOf()
	size := map[int]int{}
	for _, n := range numa {
		size[n]++
	}
	if len(size) != 2 || size[0] != 4 || size[1] != 4 {
		t.Fatalf("the GPUs are of NUMA nodes %v; this test is for 4 of node 0 and 4 of node 1", numa)
	}
	// on waits for a pod of whole GPUs and sees that each of them is of that node.
	on := func(name string, gpus, node int) *pod {
		t.Helper()
		p := e.create(one(name, wholeGPUs(gpus), hold))
		p.running()
		g := e.wantHeld(p, "main", want{gpus: gpus, memory: e.node.gpus(t)[0].shareOf(100), percent: 100,
			level: "exclusive"})
		for _, f := range g.Shares {
			if numa[f.GPU] != node {
				t.Errorf("%s: GPU %s is of NUMA node %d, want %d", name, f.GPU, numa[f.GPU], node)
			}
		}
		return p
	}
	refused := func(name string, gpus int) {
		t.Helper()
		o := e.create(one(name, wholeGPUs(gpus), hold)).phase(corev1.PodFailed)
		if o.Status.Reason != "TopologyAffinityError" || !strings.Contains(o.Status.Message, "Topology locality") {
			t.Errorf("%s: %s", name, describe(o))
		}
	}
	refused("five", 5) // more than a node has
	first := on("first", 3, 0)
	on("second", 3, 1)
	refused("two", 2) // one is free of each node
	first.delete()
	first.released()
	// kubelet takes the first node that has one. By itself the agent would take what is left of the other.
	on("single", 1, 0)
	on("pair", 2, 0)
	// Units of fractions are of no GPU: the manager has no word on them.
	part := e.create(one("part", gibs(10), "exec gpuload --json --alloc 9GiB --hold 1h"))
	part.running()
	e.wantHeld(part, "main", share(10*gib, 0))
}
