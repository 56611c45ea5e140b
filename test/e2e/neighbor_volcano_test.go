// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// withVolcano runs Volcano's scheduler and controllers until the test ends.
func (e *testCase) withVolcano() {
	e.Helper()
	program := e.buildOperator("volcano")
	kinds, err := os.ReadFile(program + ".yaml")
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { e.kubectl(string(kinds), "delete", "--ignore-not-found", "--timeout=60s", "-f", "-") })
	if err := e.apply(string(kinds)); err != nil {
		e.Fatal(err)
	}
	if r := e.kubectl("", "wait", "--for=condition=Established", "--timeout=60s", "-f", program+".yaml"); r.err != nil {
		e.Fatal(r)
	}
	config := "--kubeconfig=" + e.node.env["KUBECONFIG"]
	e.runsController(program+"-controllers", config, "--leader-elect=false")
	e.runsController(program, config, "--leader-elect=false", "--scheduler-conf="+program+".conf")
	e.Cleanup(func() {
		r := e.kubectl("", "delete", "jobs.batch.volcano.sh", "--all", "--timeout=60s", "-n", e.namespace)
		if r.err != nil {
			e.Error(r)
		}
	})
}

// notAllFit is what Volcano says of a gang with too few shares on the node.
const notAllFit = "Insufficient kerf.dev/gpu-memory-gib"

// gangWaits waits until Volcano has said that not all pods of the gang fit.
func (e *testCase) gangWaits() {
	e.Helper()
	eventually(e, "a gang that waits", func() error {
		r := e.kubectl("", "get", "podgroups.scheduling.volcano.sh", "-n", e.namespace, "-o",
			"jsonpath={.items[*].status.conditions[?(@.type=='Unschedulable')].message}")
		if r.err != nil || !strings.Contains(r.out, notAllFit) {
			return fmt.Errorf("it says %v", r)
		}
		return nil
	})
}

// The recipe for Volcano, with Volcano: its pods start when all of them fit, and each has its share.
func TestNeighborVolcano(t *testing.T) {
	if !*runNeighbors {
		t.Skip("Volcano is not built for the suite: run it with make e2e-neighbors")
	}
	e := beginWithAgent(t)
	e.withVolcano()
	file, _ := e.recipe("volcano.yaml", "minAvailable: 2", "minAvailable: 5", "replicas: 2", "replicas: 5",
		`"20"`, `"75"`, "image: python:3.13", "image: "+loadImage+"\n          command: [sleep, \"3600\"]")
	var first []*pod
	for _, name := range []string{"first", "second", "third", "fourth"} { // they leave 352 of 632 GiB, 375 are needed
		first = append(first, e.create(one(name, gibs(70), hold)))
	}
	for _, p := range first {
		p.running()
	}
	typed := func(n int) string {
		return e.typePage(strings.ReplaceAll(e.pageBlock("docs/use/volcano.md", n), "deploy/recipes/volcano.yaml",
			file))
	}
	typed(0)
	members := e.podsWith("volcano.sh/job-name=train", 5)
	e.gangWaits()
	if out := typed(1); !strings.Contains(out, notAllFit) {
		t.Errorf("the page's command prints:\n%s", out)
	}
	for _, p := range members {
		if o := p.get(); o.Spec.NodeName != "" {
			t.Errorf("%s is on %s before all fit", p.name, o.Spec.NodeName)
		}
	}
	first[0].delete()
	for _, p := range members {
		p.running()
		e.wantHeld(p, "main", share(75*gib, 0))
	}
	typed(2)
	for _, p := range members {
		p.released()
	}
}
