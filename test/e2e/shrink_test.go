// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A config leaves a GPU less memory than a crash-looping pod has of it, and kubelet restarts while the pod waits for
// its next start. The pod keeps its grant: kubelet admits it again, and its next container has the same cap.
func TestConfigShrinksUnderACrashLoop(t *testing.T) {
	e := beginWithAgent(t)
	const memory = "kerf.dev/gpu-memory-gib"
	spec := e.pinned("crashes", 6, 60, "gpuload --json --alloc 59GiB; "+untilTold("1GiB")+"; exit 3")
	spec.restart = corev1.RestartPolicyAlways
	p := e.create(spec)
	p.running()
	first := e.wantHeld(p, "main", share(60*gib, 0))
	_, all, err := e.capacity(memory)
	if err != nil {
		t.Fatal(err)
	}
	rules := e.readRules()
	t.Cleanup(func() {
		e.nowRules(rules)
		eventually(e, "all of the memory", func() error {
			if _, now, err := e.capacity(memory); err != nil || now != all {
				return fmt.Errorf("%d of %d GiB: %w", now, all, errors.Join(err))
			}
			return nil
		})
	})
	e.nowRules(e.changedRules("- name: default\n", "- name: default\n    memoryReserve: 30GiB\n"))
	eventually(e, "less memory", func() error {
		if _, now, err := e.capacity(memory); err != nil || now >= all {
			return fmt.Errorf("%d of %d GiB: %w", now, all, errors.Join(err))
		}
		return nil
	})
	id := p.id("main")
	for again, ids := true, []string{id}; again; {
		if again = p.crash(ids); again {
			p.running()
			id = p.id("main")
			ids = []string{id}
		}
	}
	e.node.restart(t, "kubelet") // while the pod waits for its next start
	e.create(one("after", gibs(1), hold)).running()
	p.until("next container", func(o *corev1.Pod) error {
		if o.Status.Phase == corev1.PodFailed {
			return final("%s", describe(o))
		}
		if s := o.Status.ContainerStatuses[0]; s.State.Running == nil || containerID(s) == id {
			return fmt.Errorf("%s", describe(o))
		}
		return nil
	})
	if g := e.wantHeld(p, "main", share(60*gib, 0)); g.ID != first.ID || g.Shares[0].GPU != first.Shares[0].GPU {
		t.Errorf("it has %+v, before the change it had %+v", g, first)
	}
	other := e.create(e.pinned("other", 5, 60, hold))
	other.event("no GPU that the request names has 60GiB")
}
