// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// The node's object is made once, and its status written after that.
func TestPublishStatus(t *testing.T) {
	a := newAPI(t)
	c := a.client(t, false)
	if err := c.PublishStatus(t.Context(), json.RawMessage(`{"ready":true}`)); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("where the kind is not known: %v", err)
	}
	a.kinds = true
	for _, ready := range []bool{true, false} {
		text, _ := json.Marshal(map[string]bool{"ready": ready})
		if err := c.PublishStatus(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		want := map[string]map[string]any{gpuNodes + node: {
			"apiVersion": "kerf.dev/v1alpha1", "kind": "GPUNode", "status": map[string]any{"ready": ready},
			"metadata": map[string]any{"name": node, "labels": map[string]any{"app.kubernetes.io/part-of": "kerf"}},
		}}
		if d := cmp.Diff(want, a.applied); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	if a.puts != 2+3+1 {
		t.Errorf("%d requests", a.puts)
	}
	a.denied = true
	if err := c.PublishStatus(t.Context(), json.RawMessage(`{}`)); !errors.Is(err, sharing.ErrDenied) {
		t.Errorf("without the right: %v", err)
	}
}

// The Node owns what the agent writes, so that both go when it goes. An object of an agent that gave none gets the
// owner, and so does what is written after the Node was created again.
func TestTheNodeOwns(t *testing.T) {
	a := newAPI(t)
	a.kinds = true
	c := a.client(t, false)
	lease := "/apis/coordination.k8s.io/v1/namespaces/kerf-system/leases/kerf-node-" + node
	write := func(uid string) {
		t.Helper()
		if uid != "" {
			a.nodeUID(uid)
			if _, err := c.OwnLabels(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		err := c.PublishStatus(t.Context(), json.RawMessage(`{"ready":true}`))
		if err = errors.Join(err, c.Heartbeat(t.Context(), time.Now(), time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	owners := func() []any {
		var all []any
		for _, path := range []string{gpuNodes + node, lease} {
			metadata, _ := a.applied[path]["metadata"].(map[string]any)
			all = append(all, metadata["ownerReferences"])
		}
		return all
	}
	write("") // the Node has not been read yet
	if d := cmp.Diff([]any{nil, nil}, owners()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, uid := range []string{"first", "first", "second"} {
		write(uid)
		own := []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}}
		if d := cmp.Diff([]any{own, own}, owners()); d != "" {
			t.Errorf("Node %s (-want +got):\n%s", uid, d)
		}
	}
	select {
	case <-c.Renewed():
	default:
		t.Error("no one hears of the new Node")
	}
	puts := a.puts
	write("second")
	if a.puts != puts+2 {
		t.Errorf("%d requests where nothing changed, want the status and the Lease", a.puts-puts)
	}
}

func TestNamespaceLabels(t *testing.T) {
	a := newAPI(t)
	c := a.client(t, false)
	if _, err := c.NamespaceLabels(t.Context(), "gone"); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("a namespace that is gone: %v", err)
	}
	got, err := c.NamespaceLabels(t.Context(), "labelled")
	if err != nil || got["kerf.dev/allow-host-paths"] != "true" {
		t.Errorf("%v, %v", got, err)
	}
	a.denied = true
	if _, err := c.NamespaceLabels(t.Context(), "labelled"); !errors.Is(err, sharing.ErrDenied) {
		t.Errorf("without the right: %v", err)
	}
}

func TestHeartbeat(t *testing.T) {
	a := newAPI(t)
	a.kinds = true
	c := a.client(t, false)
	at := time.Date(2026, 11, 1, 12, 0, 0, 5e6, time.FixedZone("", 3600))
	if err := c.Heartbeat(t.Context(), at, 40*time.Second); err != nil {
		t.Fatal(err)
	}
	got := a.applied["/apis/coordination.k8s.io/v1/namespaces/kerf-system/leases/kerf-node-"+node]
	want := map[string]any{"holderIdentity": node, "leaseDurationSeconds": 40.,
		"renewTime": "2026-11-01T11:00:00.005000Z"}
	if d := cmp.Diff(want, got["spec"]); d != "" || got["kind"] != "Lease" {
		t.Errorf("%v (-want +got):\n%s", got, d)
	}
}
