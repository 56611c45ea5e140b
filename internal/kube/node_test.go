// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
)

// nodeAPI is as much of an API server as has to do with one node. It can lose a race, and refuse.
type nodeAPI struct {
	mu     sync.Mutex
	node   corev1.Node
	denied bool
	race   bool
	// patches is how many were taken.
	patches int
	news    chan struct{}
}

func newNodeAPI(a *api) *nodeAPI {
	n := &nodeAPI{news: make(chan struct{}, 16), node: corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: node,
			ResourceVersion: "1"},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}}
	a.away(n.serve)
	return n
}

func (n *nodeAPI) change(f func(*corev1.Node)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(&n.node)
	v, _ := strconv.Atoi(n.node.ResourceVersion)
	n.node.ResourceVersion = strconv.Itoa(v + 1)
	n.news <- struct{}{}
}

func (n *nodeAPI) serve(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	denied, now := n.denied, n.node.DeepCopy()
	n.mu.Unlock()
	q := r.URL.Query()
	switch {
	case denied:
		status(w, http.StatusForbidden, metav1.StatusReasonForbidden, nil)
	case r.Method == http.MethodPatch:
		n.patch(w, r)
	case r.URL.Path == "/api/v1/nodes/"+node:
		answer(w, http.StatusOK, now)
	case r.URL.Path != "/api/v1/nodes" || q.Get("fieldSelector") != "metadata.name="+node:
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, nil)
	case q.Get("sendInitialEvents") != "":
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, nil) // as one that does not stream lists
	case q.Get("watch") == "":
		answer(w, http.StatusOK, &corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"},
			ListMeta: metav1.ListMeta{ResourceVersion: now.ResourceVersion}, Items: []corev1.Node{*now}})
	default:
		select { // a watch that ends at each change: the client lists again
		case <-n.news:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
	}
}

func (n *nodeAPI) patch(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	n.mu.Lock()
	defer n.mu.Unlock()
	before, _ := json.Marshal(n.node)
	var after []byte
	var err error
	switch kind := types.PatchType(r.Header.Get("Content-Type")); {
	case r.URL.Path == "/api/v1/nodes/"+node+"/status" && kind == types.StrategicMergePatchType:
		after, err = strategicpatch.StrategicMergePatch(before, data, corev1.Node{})
	case kind == types.ApplyPatchType:
		after, err = n.applied(data, r.URL.Query().Get("fieldManager"))
	default:
		var p struct {
			Metadata struct{ ResourceVersion string }
			Spec     struct{ Taints []corev1.Taint }
		}
		if err = json.Unmarshal(data, &p); err == nil &&
			(n.race || p.Metadata.ResourceVersion != n.node.ResourceVersion) {
			status(w, http.StatusConflict, metav1.StatusReasonConflict, nil)
			return
		}
		changed := n.node.DeepCopy()
		changed.Spec.Taints = p.Spec.Taints
		after, _ = json.Marshal(changed)
	}
	var is corev1.Node
	if err == nil {
		err = json.Unmarshal(after, &is)
	}
	if err != nil {
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, nil)
		return
	}
	n.node, n.patches = is, n.patches+1
	v, _ := strconv.Atoi(n.node.ResourceVersion)
	n.node.ResourceVersion = strconv.Itoa(v + 1) // each change makes a version, that of the status too
	answer(w, http.StatusOK, &n.node)
}

// applied is the node with the labels of a server-side apply, and without those that its manager had before.
func (n *nodeAPI) applied(data []byte, manager string) ([]byte, error) {
	var p corev1.Node
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, err
	}
	is, owned := n.node.DeepCopy(), map[string]any{}
	if len(is.ManagedFields) > 0 {
		for k := range ownedLabels(is.ManagedFields[0]) {
			delete(is.Labels, strings.TrimPrefix(k, "f:"))
		}
	}
	for k, v := range p.Labels {
		is.Labels[k], owned["f:"+k] = v, struct{}{}
	}
	fields, err := json.Marshal(map[string]any{"f:metadata": map[string]any{"f:labels": owned}})
	if err != nil {
		return nil, err
	}
	is.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationApply,
		FieldsV1: metav1.NewFieldsV1(string(fields))}}
	return json.Marshal(is)
}

func (n *nodeAPI) shows() (conditions []string, taints []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.node.Status.Conditions {
		conditions = append(conditions, string(c.Type)+"="+string(c.Status))
	}
	for _, t := range n.node.Spec.Taints {
		taints = append(taints, t.Key)
	}
	slices.Sort(conditions)
	return conditions, taints
}

// Condition and taint come and go, and those of others stay.
func TestMarkNode(t *testing.T) {
	a := newAPI(t)
	n := newNodeAPI(a)
	c := a.client(t, false)
	for _, tc := range []struct {
		mark       NodeMark
		conditions []string
		taints     []string
	}{
		{NodeMark{Healthy: true, Reason: "AllHealthy"}, []string{"Ready=True", "kerf.dev/GPUsHealthy=True"},
			[]string{"theirs"}},
		{NodeMark{Reason: "GPUUnhealthy", Message: "GPU 0 is lost", Taint: true},
			[]string{"Ready=True", "kerf.dev/GPUsHealthy=False"}, []string{"theirs", TaintKey}},
		{NodeMark{Reason: "GPUUnhealthy", Message: "GPU 1 too", Taint: true},
			[]string{"Ready=True", "kerf.dev/GPUsHealthy=False"}, []string{"theirs", TaintKey}},
		{NodeMark{Reason: "GPUUnhealthy"}, []string{"Ready=True", "kerf.dev/GPUsHealthy=False"}, []string{"theirs"}},
		{NodeMark{Clear: true, Taint: true}, []string{"Ready=True"}, []string{"theirs"}},
	} {
		if err := c.MarkNode(t.Context(), tc.mark); err != nil {
			t.Fatalf("%+v: %v", tc.mark, err)
		}
		if conditions, taints := n.shows(); !slices.Equal(conditions, tc.conditions) ||
			!slices.Equal(taints, tc.taints) {
			t.Errorf("%+v: conditions %v, taints %v", tc.mark, conditions, taints)
		}
	}
	n.change(func(o *corev1.Node) {
		o.Status.Conditions = append(o.Status.Conditions, corev1.NodeCondition{Type: formerCondition, Status: "True"})
	})
	if err := c.MarkNode(t.Context(), NodeMark{Healthy: true}); err != nil {
		t.Fatal(err)
	}
	if got, _ := n.shows(); !slices.Equal(got, []string{"Ready=True", "kerf.dev/GPUsHealthy=True"}) {
		t.Errorf("after an upgrade: conditions %v", got)
	}
	n.race = true
	if err := c.MarkNode(t.Context(), NodeMark{Taint: true}); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("a race that was lost: %v", err)
	}
	n.race, n.denied = false, true
	if err := c.MarkNode(t.Context(), NodeMark{Taint: true}); !errors.Is(err, sharing.ErrDenied) {
		t.Errorf("no right to it: %v", err)
	}
}

func TestFollowNode(t *testing.T) {
	a := newAPI(t)
	n := newNodeAPI(a)
	c := a.client(t, false)
	var mu sync.Mutex
	var last []string
	var failed error
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.WatchNode(ctx, func(taints []string, err error) {
			mu.Lock()
			defer mu.Unlock()
			last, failed = taints, err
		})
	}()
	sees := func(want []string, wrong error) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(last, want) && errors.Is(failed, wrong)
		}
	}
	eventually.True(t, "the first taints", sees([]string{"theirs"}, nil))
	n.change(func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "spot"}) })
	eventually.True(t, "a new taint", sees([]string{"theirs", "spot"}, nil))
	n.change(func(node *corev1.Node) { node.Spec.Taints, n.denied = nil, true })
	eventually.True(t, "the right is gone", sees(nil, sharing.ErrDenied))
	cancel()
	<-done
}
