// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A pod that requests no GPU runs, and neither its environment nor the runtime class gives it one.
func TestPlainPodSeesNoGPU(t *testing.T) {
	t.Parallel()
	e := begin(t)
	p := e.create(podSpec{name: "plain", containers: []container{{
		run: "ls /dev | grep nvidia; gpuload --json",
		env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"},
	}}})
	o := p.phase(corev1.PodFailed)
	if l := p.loads("main", 1)[0]; l.Error == nil || l.Total != nil {
		t.Errorf("a pod without a request sees a GPU: %v", l)
	}
	if log := p.logs("main"); strings.Contains(log, "nvidia0") {
		t.Errorf("it has device files: %q", log)
	}
	if code := o.Status.ContainerStatuses[0].State.Terminated.ExitCode; code != 9 {
		t.Errorf("gpuload ended with %d", code)
	}
}

// The harness itself: a pod that the runtime gives every GPU sees them, and the driver sees the pod.
func TestSimulatedNode(t *testing.T) {
	t.Parallel()
	e := begin(t)
	gpus := e.node.gpus(t)
	if len(gpus) != 8 {
		t.Fatalf("%d GPUs", len(gpus))
	}
	// Kerf does not restrict the containers of its namespace.
	p := e.create(podSpec{
		name: dnsName(e.namespace), namespace: kerfNamespace, runtimeClass: "nvidia",
		containers: []container{{
			run: "for i in 0 1 2 3 4 5 6; do gpuload --json --gpu $i; done; exec gpuload --json --gpu 7 --alloc " +
				"3GiB --hold 1h",
			image: "kerf.test/greedy:1", // it asks for all GPUs by its environment
		}},
	})
	p.running()
	for i, l := range p.loads("main", 8) {
		if l.Error != nil || l.Total == nil {
			t.Errorf("GPU %d: %v", i, l)
		}
	}
	id := p.id("main")
	var mine []simProcess
	for _, s := range e.node.processes(t) {
		if strings.Contains(s.Cgroup, id) {
			mine = append(mine, s)
		}
	}
	if len(mine) != 1 || mine[0].GPU != gpus[7].UUID || mine[0].Bytes < 3*gib {
		t.Errorf("the driver sees of container %s: %+v", id, mine)
	}
	out, errOut, err := p.exec("main", "ls", "/dev")
	if err != nil || !slices.Contains(strings.Fields(out), "nvidiactl") {
		t.Errorf("exec: %q, %q, %v", out, errOut, err)
	}
}
