// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// labelled makes the node one of the DaemonSet's, or not.
func (e *testCase) labelled(value string) {
	e.Helper()
	if r := e.kubectl("", "patch", "node", e.node.env["NODE_NAME"], "-p",
		`{"metadata":{"labels":{"kerf.dev/deploy-agent":`+
			value+`}}}`); r.err != nil {
		e.Fatalf("label the node: %v", r)
	}
}

func (e *testCase) waitForAgentOnNode() {
	e.Helper()
	eventually(e, "the agent on the node", func() error {
		s, err := e.status()
		if err == nil && !s.Ready {
			err = fmt.Errorf("it is not ready: %s", strings.Join(s.NotReady, "; "))
		}
		if err != nil {
			return err
		}
		if r := e.node.in("wget", "-qO-", "http://127.0.0.1:9445/readyz"); r.err != nil {
			return fmt.Errorf("it is not ready: %v", r)
		}
		return nil
	})
}

// mpsInAgent gives the agent's container the programs of MPS, as NVIDIA's runtime does, until the test ends.
func (e *testCase) mpsInAgent() {
	e.Helper()
	bin, gpus := e.node.env["REPO"]+"/bin", e.node.env["GPUSIM_DIR"]
	patch := func(mark string) string {
		volume := `{"name":"programs","hostPath":{"path":"` + bin + `"}` + mark + `}`
		mount := `{"name":"programs","mountPath":"` + bin + `"` + mark + `}`
		return `{"spec":{"template":{"spec":{"volumes":[` + volume +
			`],"containers":[{"name":"agent","volumeMounts":[` + mount +
			`],"env":[{"name":"PATH","value":"` + gpus + `/bin:/usr/local/bin:/usr/bin:/bin"` + mark + `}]}]}}}}`
	}
	e.patchAgent(patch(""))
	e.Cleanup(func() { e.patchAgent(patch(`,"$patch":"delete"`)) })
}

// What MPS has on the node: control daemons and servers, and what is mounted for them.
func (e *testCase) mpsLeft() error {
	left := strings.TrimSpace(e.node.in("sh", "-c",
		"grep kerf-mps /proc/mounts; ls -d /run/kerf/mps/*/*; pgrep -f '^[^ ]*nvidia-cuda-mps'").out)
	if left != "" {
		return fmt.Errorf("there is %q", left)
	}
	return nil
}

// MPS holds containers of pods, on a driver that cannot limit memory: each to its cap, in a /dev/shm that is their
// daemon's; the agent may come and go meanwhile, and nothing is left. An agent in a container cannot have that, and
// says so.
func TestMPSOnOlderDriver(t *testing.T) {
	e := beginWithAgent(t)
	rules := e.readRules()
	byMPS := e.changedRules("backends: [driver, libkerf, reactive]", "backends: [driver, mps, libkerf]")
	e.writeRules(byMPS)
	t.Cleanup(func() {
		e.writeRules(rules)
		e.useDriver("r615")
	})
	e.mpsInAgent()
	e.useDriver("r580")
	refused := e.create(one("in-a-container", gibs(4), hold))
	refused.running()
	if g := e.grantOf(refused, "main"); g.Backend != "libkerf" ||
		!strings.Contains(g.LevelReason, "mps: the agent has separate mounts, as in a container") {
		t.Errorf("under an agent in a container: held by %q, %q", g.Backend, g.LevelReason)
	}
	refused.delete()
	refused.released()

	e.agentOnNode(byMPS)
	p := e.create(podSpec{name: "pair", containers: []container{
		{name: "greedy", run: "exec gpuload --json --alloc 6GiB --step 256MiB --hold 1h", limits: gibs(4)},
		{name: "neighbour", run: "exec gpuload --json --alloc 8GiB --hold 1h", limits: gibs(10)},
	}})
	p.running()
	if l := p.loads("greedy", 1)[0]; l.Error == nil || l.Allocated > 4*gib || l.Allocated < 3*gib {
		t.Errorf("6 GiB in a container of 4: %v", l)
	}
	if l := p.loads("neighbour", 1)[0]; l.Error != nil {
		t.Errorf("its neighbour, 8 GiB of 10: %v", l)
	}
	for container, memory := range map[string]uint64{"greedy": 4 * gib, "neighbour": 10 * gib} {
		if g := e.grantUsed(p, container); g.Backend != "mps" || g.Level != "userspace" || g.Memory != memory {
			t.Errorf("%s: %+v", container, g)
		}
	}
	e.sharesMemory(p, "greedy", "neighbour")

	before := e.heldBy(p)
	e.node.restart(t, agentName)
	e.waitForAgentOnNode()
	e.node.restart(t, "containerd")
	e.wantSame(before, p)
	eventually(e, "the same level again", func() error {
		if g := e.grantOf(p, "greedy"); g.Level != "userspace" || g.Backend != "mps" {
			return fmt.Errorf("held by %q at level %q: %s", g.Backend, g.Level, g.LevelReason)
		}
		return nil
	})

	p.delete()
	p.released()
	eventually(e, "nothing of MPS", e.mpsLeft)
	again := e.create(one("again", gibs(10), "gpuload --json --alloc 9GiB"))
	again.phase("Succeeded")
	again.delete()
	again.released()
	eventually(e, "nothing of MPS", e.mpsLeft)
}

// sharesMemory requires that what one container writes to its /dev/shm, another finds there and the node does not.
func (e *testCase) sharesMemory(p *pod, from, to string) {
	e.Helper()
	eventually(e, "a file in "+from, func() error {
		if _, errOut, err := p.exec(from, "/bin/sh", "-c", "echo here >/dev/shm/mark"); err != nil {
			return fmt.Errorf("%w, %s", err, errOut)
		}
		return nil
	})
	if out, errOut, err := p.exec(to, "/bin/cat", "/dev/shm/mark"); strings.TrimSpace(out) != "here" {
		e.Errorf("in %s: %q, %v, %s", to, out, err, errOut)
	}
	if r := e.node.in("cat", "/dev/shm/mark"); r.err == nil {
		e.Error("it is on the node, too")
	}
}
