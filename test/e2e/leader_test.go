// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// One of two replicas decides. When it hangs, and then dies, the other one binds the next pod with an unchanged ledger:
// earlier grants stay. Kubelet restarts a replica that dies at once, and it may lead again.
func TestSchedulerHandsOver(t *testing.T) {
	e := withScheduler(t)
	deployments := e.client.AppsV1().Deployments(kerfNamespace)
	if _, err := deployments.Patch(background(), schedulerName, types.MergePatchType, []byte(`{"spec":{"replicas":2}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(e, "two replicas of the scheduler", func() error {
		d, err := deployments.Get(background(), schedulerName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.ReadyReplicas != 2 || d.Status.ObservedGeneration != d.Generation {
			return fmt.Errorf("%d replicas are ready", d.Status.ReadyReplicas)
		}
		return nil
	})
	whole := func(name string) *pod {
		return e.create(byKerf(podSpec{name: name, containers: []container{{run: hold, limits: gibs(20)}}}))
	}
	first := whole("before")
	e.asPlanned(first)
	leader := e.schedulerLeader()
	if by := e.placedBy(first); !strings.HasSuffix(by, leader) {
		t.Errorf("pod before was placed by %q, and %q leads", by, leader)
	}
	// By its environment: the other replica's process has the same name.
	send := func(signal string) {
		done := e.node.in(e.node.busybox(), "sh", "-c", `for p in $("$0" pidof `+schedulerName+`); do
			if "$0" tr '\0' '\n' < /proc/$p/environ | "$0" grep -qx "HOSTNAME=$1"; then kill -$2 $p && echo sent; fi
		done`, e.node.busybox(), leader, signal)
		if strings.TrimSpace(done.out) != "sent" {
			t.Fatalf("the leader %s was not sent %s: %v", leader, signal, done)
		}
	}
	send("STOP")
	next := whole("after")
	e.asPlanned(next)
	send("KILL")
	now := e.schedulerLeader()
	if now == leader {
		t.Errorf("%s leads again, though the other replica was there", now)
	}
	if by := e.placedBy(next); !strings.HasSuffix(by, now) {
		t.Errorf("pod after was placed by %q, and %q leads", by, now)
	}
}

// schedulerLeader is the name of the scheduler's pod that decides.
func (e *testCase) schedulerLeader() string {
	e.Helper()
	var leader string
	eventually(e, "a leader", func() error {
		l, err := e.client.CoordinationV1().Leases(kerfNamespace).Get(background(), schedulerName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
			return fmt.Errorf("no replica holds the lease")
		}
		leader, _, _ = strings.Cut(*l.Spec.HolderIdentity, "_")
		return nil
	})
	return leader
}

// placedBy is which replica says that it placed a pod.
func (e *testCase) placedBy(p *pod) string {
	e.Helper()
	var by string
	eventually(e, "the event of pod "+p.name, func() error {
		list, err := e.client.EventsV1().Events(e.namespace).List(background(),
			metav1.ListOptions{FieldSelector: "reason=GPUAssigned,regarding.name=" + p.name})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return fmt.Errorf("no replica says that it was placed")
		}
		by = list.Items[0].ReportingInstance
		return nil
	})
	return by
}
