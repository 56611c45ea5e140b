// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
)

// 100 containers with a share outlive restarts of containerd: none ends, and each keeps its grant and its cap.
func TestContainerdRestartsUnderHundredContainers(t *testing.T) {
	e := beginWithAgent(t)
	var pods []*pod
	for i := range 10 {
		s := podSpec{name: fmt.Sprintf("many-%d", i)}
		for k := range 10 {
			s.containers = append(s.containers, container{name: fmt.Sprintf("c%d", k), run: hold, limits: gibs(1)})
		}
		pods = append(pods, e.create(s))
	}
	for _, p := range pods {
		p.running()
	}
	before := e.heldBy(pods...)
	if len(before) != 100 {
		t.Fatalf("%d containers, want 100", len(before))
	}
	for i, step := range []func(){
		func() { e.node.restart(t, "containerd") },
		func() { e.node.do(t, "kill", "containerd", "KILL"); e.node.do(t, "up") },
	} {
		step()
		after := e.create(one(fmt.Sprintf("after-%d", i), gibs(1), hold))
		after.running()
		e.waitForAgent()
		e.wantSame(before, pods...)
		e.neverUncapped(pods...)
		after.delete()
	}
}
