// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package notify_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
)

// evictions are what an observer counts.
type evictions []string

func (e *evictions) Evicted(reason string, err error) {
	if err != nil {
		reason += ": " + err.Error()
	}
	*e = append(*e, reason)
}

func (e *evictions) Killed(string, error) {}

// Only pods get events and are evicted, by the container that uses the grant.
func TestWhoIsReached(t *testing.T) {
	pod := ledger.Grant{Reservation: ledger.Reservation{Owner: ledger.Owner{PodUID: "uid", Namespace: "ns",
		PodName:   "p",
		Container: "init"}}}
	active := pod
	active.Active = &ledger.Attachment{Container: "main"}
	for name, c := range map[string]struct {
		grant ledger.Grant
		want  string
	}{
		"reserved":  {pod, "init"},
		"in use":    {active, "main"},
		"a process": {ledger.Grant{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var told, evicted string
			var counted evictions
			refused := errors.New("refused")
			n := &notify.Notifier{
				Observer: &counted,
				ToPod:    func(_ context.Context, ref sharing.ContainerRef, _, _ string) { told = ref.Container },
				Evictor: func(_ context.Context, ref sharing.ContainerRef) error {
					evicted = ref.Container
					return refused
				},
				LabelsOf: func(uid string) map[string]string { return map[string]string{"of": uid} },
			}
			n.Pod(t.Context(), c.grant, "Reason", "message")
			if told != c.want {
				t.Errorf("notified %q", told)
			}
			if labels := n.Labels(c.grant); labels["of"] != c.grant.Owner.PodUID {
				t.Errorf("labels %v", labels)
			}
			if n.CanEvict(c.grant) != (c.want != "") {
				t.Fatal("who can be evicted")
			}
			if c.want == "" {
				return
			}
			if err := n.Evict(t.Context(), c.grant, "idle"); !errors.Is(err, refused) || evicted != c.want ||
				len(counted) != 1 || counted[0] != "idle: refused" {
				t.Errorf("evicted %q: %v, counted %q", evicted, err, counted)
			}
		})
	}
}

// Without a cluster there are no events and no evictions.
func TestNoCluster(t *testing.T) {
	var n notify.Notifier
	owner := ledger.Owner{PodUID: "uid", Namespace: "ns", PodName: "p"}
	pod := ledger.Grant{Reservation: ledger.Reservation{Owner: owner}}
	n.Pod(t.Context(), pod, "Reason", "message")
	n.Node(t.Context(), "Reason", "message")
	if n.CanEvict(pod) || n.Labels(pod) != nil {
		t.Error("a pod is reached without a cluster")
	}
}
