// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const nextVersion, nextImage = "v99.0.0-e2e", "kerf.test/agent:next"

// makeNextAgent builds the agent and its hook as of another version, and loads their image. Both have the same version,
// because specs only call the hook of the agent's image. TestHookByHand runs the first hook against this agent.
func (e *testCase) makeNextAgent() {
	e.Helper()
	repo := e.node.env["REPO"]
	root := e.node.env["E2E_DIR"] + "/node/next-agent"
	e.Cleanup(func() { _ = os.RemoveAll(root) })
	programs := filepath.Join(root, "usr/bin")
	// What the programs load is taken from the image of the version that is here.
	if out, err := exec.Command("sh", "-ec", `mkdir -p "$1"; tar -xOf "$2" layer.tar | tar -x -C "$1"`, "sh", root,
		e.node.env["E2E_DIR"]+"/img/agent.tar").CombinedOutput(); err != nil {
		e.Fatalf("unpack the agent's image: %v\n%s", err, out)
	}
	for program, cgo := range map[string]string{"kerf-agent": "1", "kerf-hook": "0"} {
		at := strings.TrimSpace(command("find", root, "-name", program).out)
		if at == "" {
			e.Fatalf("the agent's image has no %s", program)
		}
		flags := "-X main.version=" + nextVersion
		if cgo == "1" {
			flags += " -extldflags=-Wl,-z,lazy"
		}
		build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", flags, "-o", at, "./cmd/"+program)
		build.Dir, build.Env = repo, append(os.Environ(), "CGO_ENABLED="+cgo,
			"CGO_CFLAGS=-O2 -g -Wno-deprecated-declarations")
		if out, err := build.CombinedOutput(); err != nil {
			e.Fatalf("build %s: %v\n%s", program, err, out)
		}
		programs = filepath.Dir(at)
	}
	e.node.do(e.T, "image", nextImage, root, strings.TrimPrefix(programs, root)+"/kerf-agent")
}

// setAgentImage is an upgrade or its reverse.
func (e *testCase) setAgentImage(image string) {
	e.Helper()
	e.patchAgent(`{"spec":{"template":{"spec":{"containers":[{"name":"agent","image":"` + image + `"}]}}}}`)
	e.waitForAgent()
}

// hooksOnNode are the versions whose hook lies on the node.
func (e *testCase) hooksOnNode() []string {
	e.Helper()
	versions := strings.Fields(e.node.in("ls", "/opt/kerf").out)
	slices.Sort(versions)
	return versions
}

// An upgrade brings its own hook, names it in the specs and keeps the hook of the version before, because containers
// that are just being created may name it. Running containers are not touched; restarted and new ones start with the
// new hook. The same applies to a downgrade.
func TestUpgrade(t *testing.T) {
	e := beginWithAgent(t)
	e.makeNextAgent()
	runs := e.create(one("runs", gibs(10), "exec gpuload --json --alloc 9GiB --hold 1h"))
	spec := one("restarts", gibs(5), untilTold("4GiB"))
	spec.restart = corev1.RestartPolicyAlways
	restarts := e.create(spec)
	runs.running()
	restarts.running()
	before := e.heldBy(runs, restarts)
	first := e.hookPath()
	was := e.agentVersion()
	if first != "/opt/kerf/"+was+"/kerf-hook" || was == nextVersion {
		t.Fatalf("the agent is %s, its hook %s", was, first)
	}
	t.Cleanup(func() { e.setAgentImage(agentImage) })
	for i, step := range []struct{ image, version, other string }{{nextImage, nextVersion, was},
		{agentImage, was, nextVersion}} {
		e.setAgentImage(step.image)
		if v := e.agentVersion(); v != step.version {
			t.Errorf("the agent is %s", v)
		}
		if path := e.hookPath(); path != "/opt/kerf/"+step.version+"/kerf-hook" {
			t.Errorf("the hook is %s", path)
		}
		if have := e.hooksOnNode(); len(have) != 2 || !slices.Contains(have, step.version) ||
			!slices.Contains(have, step.other) {
			t.Errorf("hooks of %q are there, want those of %s and %s", have, step.version, step.other)
		}
		for _, program := range []string{step.version, step.other} {
			if said := strings.TrimSpace(e.node.in("/opt/kerf/"+program+"/kerf-hook", "version").out); said != program {
				t.Errorf("the hook of %s says that it is %q", program, said)
			}
		}
		e.wantSame(before, runs, restarts)
		fresh := e.create(one(fmt.Sprintf("new-%d", i), gibs(5), hold))
		fresh.running()
		e.wantHeld(fresh, "main", share(5*gib, 0))
		restarts.tell("main")
		restarts.anotherInstance(before["restarts/main"].container)
		e.wantHeld(restarts, "main", share(5*gib, 0))
		before = e.heldBy(runs, restarts)
	}
	if l := runs.loads("main", 1); len(l) != 1 || l[0].Error != nil {
		t.Errorf("the load was disturbed: %v", l)
	}
}

// agentVersion is what the agent says of itself.
func (e *testCase) agentVersion() string {
	e.Helper()
	return e.picture().Version
}
