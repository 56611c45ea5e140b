// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	utilexec "k8s.io/client-go/util/exec"
)

// untilTold is a program that takes memory, and runs until the test tells it to end. It starts no process to wait.
func untilTold(alloc string) string {
	return "gpuload --json --alloc " + alloc + "; mkfifo /tmp/go 2>/dev/null; read go </tmp/go || true"
}

// tell ends a program that waits for it. If that is the container's first process, its end may kill the program that
// signaled it. That program had done its work by then: the file is there.
func (p *pod) tell(container string) {
	p.e.Helper()
	const killed = 128 + int(syscall.SIGKILL)
	_, errOut, err := p.exec(container, "sh", "-c", ": >/tmp/go")
	if exit, ok := errors.AsType[utilexec.ExitError](err); err != nil && (!ok || exit.ExitStatus() != killed) {
		p.e.Fatalf("tell %s/%s: %v, %s", p.name, container, err, errOut)
	}
}

// runs waits until one container of the pod, init or app, does.
func (p *pod) runs(container string) {
	p.e.Helper()
	p.until(container+" running", func(o *corev1.Pod) error {
		for _, s := range containerStatuses(o) {
			if s.Name == container && s.State.Running != nil {
				return nil
			}
		}
		if o.Status.Phase == corev1.PodFailed || o.Status.Phase == corev1.PodSucceeded {
			return final("%s", describe(o))
		}
		return fmt.Errorf("%s", describe(o))
	})
}

// An init container runs with its own cap on what is the app container's afterwards; a larger one has its own
// claim, which ends with it.
func TestInitContainer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		init, app int
		grants    int // while the init container runs
	}{
		"smaller": {init: 2, app: 3, grants: 1},
		"equal":   {init: 3, app: 3, grants: 1},
		"larger":  {init: 4, app: 3, grants: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := beginWithAgent(t)
			p := e.create(podSpec{
				name: "init",
				init: []container{{name: "before", run: untilTold(fmt.Sprintf("%dGiB", c.init)),
					limits: gibs(c.init)}},
				containers: []container{{run: hold, limits: gibs(c.app)}},
			})
			p.runs("before")
			e.wantHeld(p, "before", share(uint64(c.init)*gib, 0))
			if l := p.loads("before", 1)[0]; l.Error == nil {
				t.Errorf("it took all of its cap, and a program needs some for itself: %v", l)
			}
			if all := e.grantsOf(p); len(all) != c.grants {
				t.Errorf("%d grants while the init container runs: %+v", len(all), all)
			}
			first := e.grantOf(p, "main").ID
			before := p.id("before")
			p.tell("before")
			p.running()
			if g := e.wantHeld(p, "main", share(uint64(c.app)*gib, 0)); g.ID != first {
				t.Errorf("the app container has grant %s, and %s was held for it", g.ID, first)
			}
			eventually(t, "one grant", func() error {
				if all := e.grantsOf(p); len(all) != 1 {
					return fmt.Errorf("%+v", all)
				}
				return nil
			})
			if caps := e.node.capsOf(t, before); len(caps) > 0 {
				t.Errorf("the driver still holds %v for the init container", caps)
			}
		})
	}
}

// A sidecar, which is a restartable init container, runs with the app container, each with its own cap. A sidecar that
// ends is started again with what it had.
func TestSidecar(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	p := e.create(podSpec{
		name: "sidecar",
		init: []container{
			{name: "side", run: untilTold("1GiB"), limits: gibs(2), sidecar: true},
			{name: "before", run: "gpuload --json", limits: gibs(3)},
		},
		containers: []container{{run: hold, limits: gibs(4)}},
	})
	p.running()
	side, app := e.wantHeld(p, "side", share(2*gib, 0)), e.wantHeld(p, "main", share(4*gib, 0))
	if l := p.loads("before", 1)[0]; l.Total == nil || *l.Total != 3*gib {
		t.Errorf("the init container between them: %v", l)
	}
	former := p.id("side")
	p.tell("side")
	p.until("sidecar started again", func(o *corev1.Pod) error {
		for _, s := range o.Status.InitContainerStatuses {
			if s.Name == "side" && s.RestartCount == 1 && s.State.Running != nil {
				return nil
			}
		}
		return fmt.Errorf("%s", describe(o))
	})
	if again := e.wantHeld(p, "side", share(2*gib, 0)); again.ID != side.ID ||
		again.Shares[0].GPU != side.Shares[0].GPU {
		t.Errorf("the sidecar had %+v, and has %+v", side, again)
	}
	if now := e.wantHeld(p, "main", share(4*gib, 0)); now.ID != app.ID || p.status("main").RestartCount != 0 {
		t.Errorf("the app container had %+v, and has %+v", app, now)
	}
	if caps := e.node.capsOf(t, former); len(caps) > 0 {
		t.Errorf("the driver still holds %v for the sidecar's former instance", caps)
	}
}
