// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	placing "github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// What reports and heartbeats of nodes do to the real scheduler, each on its own node.
func TestSchedulerBelieves(t *testing.T) {
	t.Parallel()
	h := beginWithAgent(t).hollowNodes(4, 2)
	if err := h.beat(0, time.Now().Add(-31*time.Second), 30*time.Second); err != nil {
		t.Fatal(err)
	}
	h.runScheduler(h.node.program(schedulerName), h.kerfScheduler())

	// A report that is 31 s old where 30 are allowed takes nothing new, and does with the next heartbeat.
	late := h.pod("late", gibs(10), 0)
	late.event("FailedScheduling", "kerf-agent was not heard from in time")
	if err := h.beat(0, time.Now(), time.Hour); err != nil {
		t.Fatal(err)
	}
	h.where(late)

	// A GPU that is lost while a pod is reserved on it takes nothing: the node will put that pod on its other GPU,
	// which is held for it then, until the first one is back.
	old, fresh := []string{"kerf.dev/gpu-model", "Hollow"}, []string{"kerf.dev/gpu-model", "Fresh"}
	lost := h.where(h.pod("first", gibs(60), 1, old...))
	seen := h.pod("seen", gibs(1), 1, fresh...) // it waits for a GPU that comes with the same report
	seen.event("FailedScheduling", "no GPU of the model")
	report := func(health string) func(*gpunode.Status) {
		return func(s *gpunode.Status) {
			for g := range s.GPUs {
				if s.GPUs[g].UUID == lost {
					s.GPUs[g].Health = health
				}
			}
			added := s.GPUs[0]
			added.UUID, added.Index, added.Model, added.Health = h.gpu(1, 9), 9, "Fresh", "healthy"
			s.GPUs = append(s.GPUs, added)
		}
	}
	h.mustTell(1, report("lost"))
	h.where(seen)
	second := h.pod("second", gibs(60), 1, old...)
	second.event("FailedScheduling", "too little free on any one GPU")
	h.mustTell(1, report("healthy"))
	if got := h.where(second); got == lost || got == h.gpu(1, 9) {
		t.Errorf("the second is planned on %s, with the first", got)
	}

	// The node's own choice overrules the plan: what the plan held is free then.
	other := h.where(h.pod("other", gibs(50), 2))
	moved := h.pod("moved", gibs(20), 2, "kerf.dev/placement-policy", "spread")
	planned := h.where(moved)
	if other == planned {
		t.Fatalf("the pod that wants to be spread is planned on %s, with another", planned)
	}
	whole := h.pod("whole", gibs(hollowGiB), 2)
	whole.event("FailedScheduling", "too little free on any one GPU")
	on := 0
	if other == h.gpu(2, 1) {
		on = 1
	}
	h.mustTell(2, h.holds(2, on, moved, 20))
	if got := h.where(whole); got != planned {
		t.Errorf("planned on %s, and %s is free", got, planned)
	}

	// A pod of the same name is another pod: what the one before held is held until its node has let go.
	same := h.pod("same", wholeGPUs(2), 3)
	h.where(same)
	h.mustTell(3, func(s *gpunode.Status) {
		uid := string(same.get().UID)
		c := gpunode.Grant{ID: uid, PodUID: uid, Container: "main", Level: "exclusive"}
		for g := range s.GPUs {
			s.GPUs[g].FreeBytes, s.GPUs[g].FreePercent, s.GPUs[g].Whole = 0, 0, true
			c.Shares = append(c.Shares, gpunode.Share{GPU: h.gpu(3, g), MemoryBytes: hollowGiB * giB,
				Percent: 100, Whole: true})
		}
		s.Grants = append(s.Grants, c)
	})
	h.deleteNow(same)
	again := h.pod("same", wholeGPUs(1), 3)
	again.event("FailedScheduling", "too little free on any one GPU")
	h.mustTell(3, func(*gpunode.Status) {})
	h.where(again)

	// Only a scheduler says where a pod lies.
	forged := one("forged", gibs(1), hold)
	forged.annotations = map[string]string{planOf: h.gpu(0, 0)}
	if said := h.refused(forged); !strings.Contains(said, "only the scheduler may write annotations") {
		t.Errorf("a forged placement: %s", said)
	}
}

// deleteNow deletes a pod that no node runs.
func (h *hollow) deleteNow(p *pod) {
	h.Helper()
	grace := int64(0)
	if err := h.client.CoreV1().Pods(p.namespace).Delete(background(), p.name,
		metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		h.Fatal(err)
	}
	eventually(h, "its end", p.goneError)
}

// replayNodes and replayGPUs are the cluster of the replay, and replayPods its trace: more than there is room for.
const replayNodes, replayGPUs, replayPods = 3, 4, 36

// The real scheduler places one trace like the code behind kerf simulate: the same pods fit, on the same nodes. It runs
// alone: a new node makes the scheduler estimate the workload again and decide differently from then on.
func TestSchedulerAsSimulated(t *testing.T) {
	h := beginWithAgent(t).hollowNodes(replayNodes, replayGPUs)
	h.runScheduler(h.node.program(schedulerName), h.kerfScheduler())
	c, begin := h.simulated()
	random := rand.New(rand.NewPCG(7, 8))
	sizes := []int{10, 20, 30, 40, 50, 60, 80}
	placed, refused := 0, 0
	for i := range replayPods {
		var limits map[string]string
		q := placing.Request{Shape: placing.Shape{GPUs: 1}}
		if random.IntN(6) == 0 {
			q.GPUs, q.Share = 1+random.IntN(2), placing.WholeGPU
			limits = wholeGPUs(q.GPUs)
		} else {
			size := sizes[random.IntN(len(sizes))]
			q.Share = placing.Milli(size) * 10
			limits = percent(size)
		}
		p := h.pod("trace-"+strconv.Itoa(i), limits, -1)
		c.Learn(q)
		if i == 0 {
			begin()
		}
		place, ok := c.Choose(q)
		if !ok {
			refused++
			p.event("FailedScheduling", "too little free on any one GPU")
			continue
		}
		placed++
		h.where(p)
		if node := p.get().Spec.NodeName; node != h.names[place.Node] {
			t.Fatalf("pod %d, %v: the scheduler chose %s, the simulation %s", i, limits, node, h.names[place.Node])
		}
		if err := c.Take(q, place); err != nil {
			t.Fatal(err)
		}
	}
	if placed < replayPods/2 || refused < 2 {
		t.Errorf("%d placed, %d refused: too few to show anything", placed, refused)
	}
}

// simulated is the cluster of the hollow nodes, empty, and of the real node, which takes nothing of it. begin has its
// policy take in the nodes, as a scheduler does that has just started when it decides first.
func (h *hollow) simulated() (c *placing.Cluster, begin func()) {
	h.Helper()
	node := func(name string, cpu resource.Quantity, gpus int, memory sharing.Bytes) placing.Node {
		n := placing.Node{Name: name, CPU: placing.Milli(cpu.MilliValue()), Memory: 512 * sharing.GiB, Model: "Hollow",
			GPUMemory: memory, Level: sharing.LevelDriver}
		for range gpus {
			n.GPUs = append(n.GPUs, placing.WholeGPU)
		}
		return n
	}
	var nodes []placing.Node
	for _, name := range h.names {
		nodes = append(nodes, node(name, resource.MustParse("64"), h.gpus, hollowGiB*sharing.GiB))
	}
	told, err := h.gpuNode()
	if err != nil || len(told.GPUs) == 0 {
		h.Fatalf("GPUs of the real node: %v", err)
	}
	machine, err := h.client.CoreV1().Nodes().Get(background(), h.node.env["NODE_NAME"], metav1.GetOptions{})
	if err != nil {
		h.Fatal(err)
	}
	nodes = append(nodes, node(machine.Name, *machine.Status.Allocatable.Cpu(), len(told.GPUs),
		sharing.Bytes(told.GPUs[0].AllocatableBytes)))
	nodes[len(nodes)-1].Model = "Real"
	policy := placing.NewOnline(nodes)
	c = placing.New(nodes, policy)
	if err := c.Cordon(len(nodes)-1, true); err != nil {
		h.Fatal(err)
	}
	return c, func() { policy.Nodes(nodes) }
}

// Two schedulers that decide at once, and know nothing of each other's plans, at worst crowd the node. As many pods run
// as there are GPUs, each on its own GPU, and the others wait, pending or refused.
func TestTwoSchedulers(t *testing.T) {
	const each, room = 6, 8
	e := beginWithAgent(t)
	both := []*hollow{{testCase: e, by: "one-" + e.namespace}, {testCase: e, by: "two-" + e.namespace}}
	var pods []*pod
	for i := range 2 * each {
		h := both[i%2]
		s := one(fmt.Sprintf("p%02d", i), gibs(60), hold)
		s.edit = func(p *corev1.Pod) { p.Spec.SchedulerName = h.scheduler() }
		pods = append(pods, e.create(s))
	}
	for _, h := range both {
		h.runScheduler(h.node.program(schedulerName), h.kerfScheduler())
	}
	eventually(e, "as many pods as there are places", func() error {
		running, said, refused, bound := map[string]bool{}, 0, 0, map[string]int{}
		s, err := e.status()
		if err != nil {
			return err
		}
		for _, g := range s.Grants {
			if g.Namespace == e.namespace && len(g.Shares) == 1 {
				if running[g.Shares[0].GPU] {
					return final("two pods have %s", g.Shares[0].GPU)
				}
				running[g.Shares[0].GPU] = true
			}
		}
		told, err := e.gpuNode()
		if err != nil {
			return err
		}
		for _, p := range pods {
			o, err := p.fetch()
			switch {
			case err != nil:
				return err
			case o.Spec.NodeName != "":
				bound[o.Spec.SchedulerName]++
				if o.Status.Phase == corev1.PodFailed { // kubelet has not as many units
					refused++
				}
			case slices.ContainsFunc(o.Status.Conditions,
				func(c corev1.PodCondition) bool { return c.Reason == corev1.PodReasonUnschedulable }):
				said++
			}
		}
		all := bound[both[0].scheduler()] + bound[both[1].scheduler()]
		switch {
		case len(running) != room || all+said != 2*each:
			return fmt.Errorf("%d GPUs are used, %v pods are bound and %d wait", len(running), bound, said)
		case len(told.PendingPods)+refused != all-room:
			return fmt.Errorf(
				"%v pods are bound for %d GPUs, the node tells of %d that it has no room for, and kubelet has "+
					"refused %d", bound, room, len(told.PendingPods), refused)
		case len(bound) != 2:
			return final("only one of both has bound anything: %v", bound)
		}
		return nil
	})
}
