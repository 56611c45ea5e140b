// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// claimsError is not nil unless the test's namespace has so many ResourceClaims.
func (e *testCase) claimsError(want int) error {
	list, err := e.client.ResourceV1().ResourceClaims(e.namespace).List(background(), metav1.ListOptions{})
	if err != nil || len(list.Items) != want {
		return errors.Join(fmt.Errorf("%d claims, want %d", len(list.Items), want), err)
	}
	return nil
}

// placed waits until the scheduler has chosen the node. Kubelet may be down.
func (p *pod) placed() {
	p.e.Helper()
	p.until("placed", func(o *corev1.Pod) error {
		if o.Spec.NodeName == "" {
			return fmt.Errorf("%s", describe(o))
		}
		return nil
	})
}

// A pod that is created while kubelet is down runs under its cap once kubelet is back. A pod that is deleted meanwhile
// is unprepared: the pod that waited for its share runs, and its claim is gone.
func TestDRAKubeletAway(t *testing.T) {
	e := beginWithDRA(t)
	gpu := e.node.gpus(t)[0]
	e.template("large", "50Gi", gpu.UUID)
	e.template("small", "10Gi", gpu.UUID)
	spec := byClaim("ends", "large", "exec gpuload --json --alloc 40GiB --hold 1h")
	refers := spec.edit
	spec.edit = func(p *corev1.Pod) { // The API server waits for kubelet.
		refers(p)
		p.Spec.TerminationGracePeriodSeconds = new(int64(60))
	}
	ends := e.create(spec)
	ends.running()
	ends.loads("main", 1)
	id := ends.id("main")
	e.node.do(t, "kill", "kubelet", "KILL")
	t.Cleanup(func() { e.node.do(t, "up") })
	created := e.create(byClaim("created", "small", greedy))
	created.placed()
	ends.startDeletion()
	waits := e.create(byClaim("waits", "large", hold))
	waits.unplaced()
	if all := e.grantsOf(ends); len(all) != 1 || all[0].ContainerID != id || len(all[0].PIDs) == 0 {
		t.Errorf("its program runs, and the agent shows %+v", all)
	}
	e.node.do(t, "up")
	eventually(t, "end of "+ends.name, ends.goneError)
	ends.released()
	if caps := e.node.capsOf(t, id); len(caps) > 0 {
		t.Errorf("the driver holds %v for the pod that has ended", caps)
	}
	created.running()
	e.wantHeld(created, "main", share(10*gib, 0))
	if l := created.loads("main", 1)[0]; l.Error == nil || l.Total == nil || *l.Total != 10*gib {
		t.Errorf("31 GiB in a pod that has 10: %v", l)
	}
	waits.running()
	e.wantHeld(waits, "main", share(50*gib, 0))
	eventually(t, "end of the claim of "+ends.name, func() error { return e.claimsError(2) })
}

// The claim of a pod that was deleted by force is free for the scheduler while the pod's process still runs. The grant
// stays until the process has ended. Only then does a new pod with the same amount start on the node.
func TestDRAForcedDeletion(t *testing.T) {
	e := beginWithDRA(t)
	gpu := e.node.gpus(t)[0]
	e.template("large", "50Gi", gpu.UUID)
	forced := e.create(byClaim("forced", "large", "exec gpuload --json --alloc 40GiB --hold 1h"))
	forced.running()
	forced.loads("main", 1)
	id := forced.id("main")
	e.node.do(t, "kill", "kubelet", "STOP")
	goOn := func() { e.node.do(t, "kill", "kubelet", "CONT") }
	t.Cleanup(goOn)
	if err := e.client.CoreV1().Pods(forced.namespace).Delete(background(), forced.name,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "end of the pod at the API server", forced.goneError)
	next := e.create(byClaim("next", "large", hold))
	next.placed()
	if all := e.grantsOf(forced); len(all) != 1 || all[0].ContainerID != id || len(all[0].PIDs) == 0 {
		t.Errorf("its process runs, and the agent shows %+v", all)
	}
	goOn()
	next.running()
	for _, s := range e.node.processes(t) {
		if strings.Contains(s.Cgroup, id) {
			t.Errorf("the next pod runs, and so does the process of the first: %+v", s)
		}
	}
	e.wantHeld(next, "main", share(50*gib, 0))
	forced.released()
	eventually(t, "end of the first claim", func() error { return e.claimsError(1) })
}

// A fault in a pool with onFault: evict ends the pod with the claim, and keeps the next pod pending until the GPU has
// recovered. The scheduler then places it, and the taint is gone.
func TestDRATaintEvicts(t *testing.T) {
	e := beginWithDRA(t)
	gpu := e.node.gpus(t)[2]
	e.template("small", "4Gi", gpu.UUID)
	t.Cleanup(func() { e.resetGPU(2) })
	e.writeRules(e.changedRules(draRules, draRules+"    health: {onFault: evict, gracePeriod: 1h}\n"))
	user := e.create(byClaim("user", "small", hold))
	user.running()
	e.node.set(t, "gpu=2 xid=48")
	e.wantTaint(gpu.UUID, string(resourceapi.DeviceTaintEffectNoExecute))
	eventually(t, "eviction of "+user.name, user.goneError)
	user.released()
	next := e.create(byClaim("next", "small", hold))
	next.unplaced()
	e.resetGPU(2)
	e.wantTaint(gpu.UUID, "")
	next.running()
	e.wantHeld(next, "main", share(4*gib, 0))
}

// kubeletForgets ends kubelet, and starts it without what it knows of device plugins. It takes five minutes to forget a
// plugin by itself. No container on the node may have devices of one.
func (e *testCase) kubeletForgets() {
	e.Helper()
	e.node.do(e.T, "kill", "kubelet", "KILL")
	e.Cleanup(func() { e.node.do(e.T, "up") })
	if r := e.node.in("sh", "-c", "rm -f "+pluginDir+"*"); r.err != nil {
		e.Fatal(r)
	}
	e.node.do(e.T, "up")
	// Without a plugin, kubelet leaves what the Node says of its resources.
	const gone = `{"kerf.dev/gpu-memory-gib": null, "kerf.dev/gpu-percent": null, "kerf.dev/gpu": null}`
	if _, err := e.client.CoreV1().Nodes().Patch(background(), e.node.env["NODE_NAME"], types.MergePatchType,
		[]byte(`{"status": {"capacity": `+gone+`, "allocatable": `+gone+`}}`), metav1.PatchOptions{}, "status"); err != nil {
		e.Fatal(err)
	}
	e.waitForSlices(8)
}

// A limit of kerf.dev/gpu is an extended resource of class whole.kerf.dev. kube-scheduler makes a claim for it, and the
// pod has the GPU alone. The claim ends with the pod.
func TestDRAExtendedResource(t *testing.T) {
	e := beginWithDRA(t)
	// The next agent registers no device plugin, as all GPUs have the DRA front end.
	e.killAgentOfDRA()
	e.kubeletForgets()
	p := e.create(one("whole", wholeGPUs(1), hold))
	o := p.running()
	s := o.Status.ExtendedResourceClaimStatus
	if s == nil || len(s.RequestMappings) != 1 || s.RequestMappings[0].ResourceName != "kerf.dev/gpu" {
		t.Fatalf("the pod's status names the claim %+v", s)
	}
	if g := e.grantOf(p, "main"); g.Level != "exclusive" || len(g.Shares) != 1 || len(g.Claims) != 1 ||
		!strings.HasPrefix(g.Claims[0], s.ResourceClaimName+"/") {
		t.Errorf("the grant is %+v, want a whole GPU by claim %s", g, s.ResourceClaimName)
	}
	if err := e.claimsError(1); err != nil {
		t.Error(err)
	}
	p.delete()
	p.released()
	eventually(t, "end of the claim", func() error { return e.claimsError(0) })
}

// Twenty pods with claims come and go as fast as the API server takes them. Every second one is deleted before it runs.
// They leave no grant, file, mount or claim.
func TestDRATwentyPodsLeaveNothing(t *testing.T) {
	e := beginWithDRA(t)
	e.template("tiny", "2Gi", e.node.gpus(t)[0].UUID)
	warm := e.create(byClaim("warm", "tiny", "gpuload --json")) // whatever is there once is there from now on
	warm.phase(corev1.PodSucceeded)
	warm.delete()
	warm.released()
	before, err := e.remains()
	if err != nil {
		t.Fatal(err)
	}
	specs := e.specFiles()
	var pods []*pod
	for i := range 20 {
		p := e.create(byClaim(fmt.Sprintf("fast-%d", i), "tiny", hold))
		if i%2 == 0 {
			p.startDeletion()
		}
		pods = append(pods, p)
	}
	for i, p := range pods {
		if i%2 == 1 {
			p.running()
			p.startDeletion()
		}
	}
	for _, p := range pods {
		eventually(t, "end of "+p.name, p.goneError)
	}
	if err := pollFor(3*time.Minute, "a node as before", func() error {
		now, err := e.remains()
		if d := now.more(before); err == nil && d != "" {
			err = fmt.Errorf("there is more: %s", d)
		}
		return errors.Join(err, e.claimsError(0))
	}); err != nil {
		t.Error(err)
	}
	if now := e.specFiles(); now != specs {
		t.Errorf("CDI specs and hook were\n%s\nand are\n%s", specs, now)
	}
}

// An upgrade of the agent, and its reverse, disturb no pod with a claim. A restarted container and a new pod get their
// caps from the next agent, and grants keep the names of their claims.
func TestDRAUpgrade(t *testing.T) {
	e := beginWithDRA(t)
	e.makeNextAgent()
	e.template("small", "10Gi", e.node.gpus(t)[0].UUID)
	runs := e.create(byClaim("runs", "small", "exec gpuload --json --alloc 9GiB --hold 1h"))
	spec := byClaim("restarts", "small", untilTold("4GiB"))
	spec.restart = corev1.RestartPolicyAlways
	restarts := e.create(spec)
	runs.running()
	restarts.running()
	before, names, was := e.heldBy(runs, restarts), e.grantOf(runs, "main").Claims, e.agentVersion()
	if len(names) != 1 || !strings.HasSuffix(names[0], "/gpu") {
		t.Errorf("the grant names the claims %v", names)
	}
	t.Cleanup(func() { e.setAgentImage(agentImage) })
	for i, step := range []struct{ image, version string }{{nextImage, nextVersion}, {agentImage, was}} {
		e.setAgentImage(step.image)
		e.waitForSlices(8)
		if v := e.agentVersion(); v != step.version {
			t.Errorf("the agent is %s, want %s", v, step.version)
		}
		e.wantSame(before, runs, restarts)
		if now := e.grantOf(runs, "main").Claims; !slices.Equal(now, names) {
			t.Errorf("the grant names the claims %v, before %v", now, names)
		}
		fresh := e.create(byClaim(fmt.Sprintf("new-%d", i), "small", hold))
		fresh.running()
		e.wantHeld(fresh, "main", share(10*gib, 0))
		fresh.delete()
		fresh.released()
		restarts.tell("main")
		restarts.anotherInstance(before["restarts/main"].container)
		e.wantHeld(restarts, "main", share(10*gib, 0))
		before = e.heldBy(runs, restarts)
	}
	if l := runs.loads("main", 1); len(l) != 1 || l[0].Error != nil {
		t.Errorf("the load was disturbed: %v", l)
	}
}
