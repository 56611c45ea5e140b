// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// clientLabel is the node label of other GPU clients, in their DaemonSets' nodeSelector. The GPU Operator's driver
// manager changes its value to paused before it unloads the driver's modules, waits for their pods, and restores it.
const (
	clientLabel = "nvidia.com/gpu.deploy.client"
	paused      = "paused-for-driver-upgrade"
)

// users counts the open device files of the driver, as the kernel does in /sys/module/nvidia/refcnt. A module with a
// count above 0 cannot be unloaded.
func (n *node) users() (count int) {
	const connected = "03"
	// An accepted socket is in the network namespace of its client.
	const everywhere = `s=; for p in /proc/[0-9]*; do n=$(readlink $p/ns/net) && case "$s" in *"$n"*) ;; *) s="$s $n"
		cat $p/net/unix ;; esac; done`
	for line := range strings.Lines(n.in(n.busybox(), "sh", "-c", everywhere).out) {
		f := strings.Fields(line)
		if len(f) == 8 && f[5] == connected && strings.HasPrefix(f[7], n.env["GPUSIM_DIR"]+"/dev/nvidia") {
			count++
		}
	}
	return count
}

// unused waits until nothing uses the driver.
func (e *testCase) unused() {
	e.Helper()
	eventually(e, "a driver without users", func() error {
		if n := e.node.users(); n > 0 {
			return fmt.Errorf("%d open device files", n)
		}
		return nil
	})
}

// reload unloads the driver and loads it again.
func (e *testCase) reload() {
	e.Helper()
	e.node.do(e.T, "kill", "gpusim", "TERM")
	e.node.do(e.T, "up")
}

// A drain of the driver evicts the pods with a grant, and has the agent release the driver. It is then loaded again,
// with no restart of the agent meanwhile, and used after the drain.
func TestDriverDrained(t *testing.T) {
	e := beginWithAgent(t)
	full, node := e.allOffers(), e.node.env["NODE_NAME"]
	user := e.create(one("user", gibs(10), "exec gpuload --json --alloc 9GiB --hold 1h"))
	user.running()
	if e.node.users() == 0 {
		t.Fatal("the test does not see who uses the driver")
	}
	agent := e.agentPIDs()
	kerf := func(args ...string) result {
		return e.node.in(append([]string{e.node.program("kerf"), "--kubeconfig", e.node.env["KUBECONFIG"]}, args...)...)
	}
	t.Cleanup(func() { kerf("uncordon", "--driver", node) })
	r := kerf("drain", "--driver", node, "--force", "--reason", "590", "--timeout", "2m")
	if r.err != nil || !strings.Contains(r.out, "is released") {
		t.Fatalf("kerf drain --driver: %v", r)
	}
	if err := user.goneError(); err != nil {
		t.Errorf("the drain leaves a pod: %v", err)
	}
	e.unused()
	// kubelet rejects a pod that comes while its node status still offers the units.
	e.offersBecome(full.unusable())
	waits := e.create(one("waits", gibs(5), hold))
	if code, body := e.agentProbe("healthz"); code != 200 {
		t.Errorf("/healthz while the driver is drained: %d %s", code, body)
	}
	if now := e.agentPIDs(); strings.Join(now, " ") != strings.Join(agent, " ") {
		t.Errorf("the drain restarts the agent: %v, before %v", now, agent)
	}
	e.reload()
	e.unused()
	if o := waits.get(); runs(o) {
		t.Errorf("a pod runs without a driver: %s", describe(o))
	}
	if r := kerf("uncordon", "--driver", node); r.err != nil {
		t.Fatalf("kerf uncordon --driver: %v", r)
	}
	e.replaceAgent() // its container has the device files of the simulated driver before
	e.offersBecome(full)
	waits.running()
	e.wantHeld(waits, "main", share(5*gib, 0))
}

// The agent keeps the contract of the GPU Operator's driver manager. The manager pauses the label of GPU clients, waits
// for the pods of their DaemonSets, unloads the modules, and restores the label.
func TestDriverManager(t *testing.T) {
	e := beginWithAgent(t)
	full := e.allOffers()
	label := func(value string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, clientLabel, value)
		if _, err := e.client.CoreV1().Nodes().Patch(background(), e.node.env["NODE_NAME"], types.MergePatchType,
			[]byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatalf("label the node: %v", err)
		}
	}
	selector := func(value string) {
		t.Helper()
		e.patchAgent(fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:%s}}}}}`, clientLabel, value))
	}
	label(`"true"`)
	t.Cleanup(func() {
		selector("null")
		label("null")
		e.waitForAgent()
	})
	selector(`"true"`)
	e.waitForAgent()
	idle := e.create(one("idle", gibs(3), hold))
	idle.running()
	before := e.heldBy(idle)

	label(fmt.Sprintf("%q", paused))
	eventually(e, "the end of GPU clients", func() error {
		if pods, err := e.agentPods(); err != nil || len(pods) > 0 {
			return fmt.Errorf("%d pods of the agent: %w", len(pods), err)
		}
		return nil
	})
	e.unused()
	e.reload()
	label(`"true"`)
	e.waitForAgent()
	e.offersBecome(full)
	e.wantSame(before, idle)
	after := e.create(one("after", gibs(5), "exec gpuload --json --alloc 4GiB"))
	after.phase(corev1.PodSucceeded)
	if err := e.uncappedError(); err != nil {
		t.Error(err)
	}
}
