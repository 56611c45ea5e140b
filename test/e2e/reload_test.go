// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// When the driver goes away under pods, nothing of it can be used and nothing is granted. Unavailable values are shown
// as unknown, nothing is freed, and no container is touched. When the driver is back it has forgotten every limit: Kerf
// restores the caps before it grants anything.
//
// The agent is replaced in between, because the simulated driver's device files are other sockets after its restart,
// and its container has the old ones. So has the bystander, which therefore uses no GPU any more.
func TestDriverReloaded(t *testing.T) {
	e := beginWithAgent(t)
	full := e.allOffers()
	bystander := e.create(one("bystander", gibs(10), "exec gpuload --json --alloc 9GiB --hold 1h"))
	idle := e.create(podSpec{name: "idle", containers: []container{{name: "small", run: hold, limits: gibs(3)},
		{name: "half", run: hold, limits: percent(50)}}})
	waits := e.create(later("waits", corev1.RestartPolicyNever))
	bystander.running()
	idle.running()
	waits.runs("before")
	before := e.heldBy(bystander, idle)
	e.node.do(t, "kill", "gpusim", "KILL")
	back := func() {
		e.node.do(t, "up")
		e.replaceAgent()
	}
	t.Cleanup(func() {
		if t.Failed() {
			back()
		}
	})
	eventually(e, "an agent without a driver", func() error {
		s, err := e.status()
		if err != nil || s.Ready || len(s.NotReady) == 0 || !strings.Contains(s.NotReady[0], "driver") {
			return fmt.Errorf("ready %t, %q: %w", s.Ready, s.NotReady, errors.Join(err))
		}
		return nil
	})
	e.offersBecome(full.unusable())
	// kubelet restarts the container if it stays so: see the liveness probe.
	if code, body := e.agentProbe("healthz"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "restart") {
		t.Errorf("/healthz without a driver: %d %s", code, body)
	}
	s := e.picture()
	for _, g := range s.GPUs {
		if g.Health == "healthy" {
			t.Errorf("without a driver GPU %d is shown as healthy", g.Index)
		}
	}
	for name, was := range before {
		for _, g := range s.Grants {
			if g.ID == was.grant && (g.Level != "unknown" || g.ContainerID != was.container) {
				t.Errorf("without a driver %s is shown as %+v", name, g)
			}
		}
	}
	waits.tell("before")
	waits.said("main", "Pulled") // kubelet asks the agent now whether it may start
	time.Sleep(2 * time.Second)
	if s := waits.status("main"); s.State.Running != nil || s.ContainerID != "" {
		t.Errorf("a container was made without a driver: %+v", s)
	}

	back()
	e.offersBecome(full)
	if code, body := e.agentProbe("healthz"); code != http.StatusOK {
		t.Errorf("/healthz with the driver back: %d %s", code, body)
	}
	e.wantSame(before, bystander, idle)
	waits.running()
	e.wantHeld(waits, "main", share(5*gib, 0))
	after := e.create(one("after", gibs(5), "exec gpuload --json --alloc 4GiB"))
	after.phase(corev1.PodSucceeded)
	if err := e.uncappedError(); err != nil {
		t.Error(err)
	}
}
