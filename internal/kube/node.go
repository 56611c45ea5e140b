// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// ConditionType is the condition of a node that says how its GPUs are: True while all are healthy.
	ConditionType = "KerfGPUsHealthy"
	// TaintKey is the taint, with effect NoSchedule, of a node with a GPU that is unhealthy or lost.
	TaintKey = "kerf.dev/gpu-unhealthy"
)

// FollowNode tells the keys of this node's taints, at first and whenever the node changes, or why they cannot be told
// (sharing.ErrDenied, sharing.ErrUnavailable), until ctx ends. tell is called from one goroutine at a time.
func (c *Client) FollowNode(ctx context.Context, tell func(taints []string, err error)) {
	logger := logr.FromSlogHandler(quiet{c.log.Handler()})
	ctx = logr.NewContext(ctx, logger)
	selector := fields.OneTermEqualSelector("metadata.name", c.node).String()
	nodes := c.core.Nodes()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			o.FieldSelector = selector
			list, err := nodes.List(ctx, o)
			if err != nil && ctx.Err() == nil {
				tell(nil, noRight(refused("read node "+c.node, err)))
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return nodes.Watch(ctx, o)
		},
	}
	cache.NewReflectorWithOptions(lw, &corev1.Node{}, nodeStore{tell}, cache.ReflectorOptions{
		Logger: &logger, Name: "the node", TypeDescription: "nodes",
		Backoff: &wait.Backoff{Duration: firstRetry, Cap: lastRetry, Steps: 10, Factor: 2, Jitter: 0.5},
	}).RunWithContext(ctx)
}

// nodeStore is the reflector's store of one node: it keeps nothing.
type nodeStore struct{ tell func([]string, error) }

// Add tells of the node.
func (s nodeStore) Add(obj any) error { return s.Update(obj) }

// Update tells of the node.
func (s nodeStore) Update(obj any) error {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return unexpected(obj)
	}
	keys := make([]string, 0, len(n.Spec.Taints))
	for _, t := range n.Spec.Taints {
		keys = append(keys, t.Key)
	}
	s.tell(keys, nil)
	return nil
}

// Delete says nothing: a node whose object is gone still runs what it runs.
func (s nodeStore) Delete(any) error { return nil }

// Replace tells of the node, if it is there.
func (s nodeStore) Replace(list []any, _ string) error {
	for _, obj := range list {
		if err := s.Update(obj); err != nil {
			return err
		}
	}
	return nil
}

// Resync has nothing to do.
func (s nodeStore) Resync() error { return nil }

// NodeMark is what the node's object is to show of its GPUs.
type NodeMark struct {
	// Healthy, Reason (one word in upper camel case) and Message are the condition's.
	Healthy         bool
	Reason, Message string
	// Taint keeps pods away that do not tolerate it.
	Taint bool
	// Clear takes condition and taint off.
	Clear bool
}

// MarkNode sets condition and taint of this node, and leaves all others as they are. Errors: sharing.ErrDenied, with what
// gives the right, and sharing.ErrUnavailable, also when somebody changed the node's taints meanwhile.
func (c *Client) MarkNode(ctx context.Context, m NodeMark) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	nodes, doing := c.core.Nodes(), "mark node "+c.node
	n, err := nodes.Get(ctx, c.node, metav1.GetOptions{})
	if err == nil {
		// The taints are patched as of the version that this makes: as of the one before, the API server would refuse them.
		n, err = nodes.Patch(ctx, c.node, types.StrategicMergePatchType, conditionPatch(n, m), metav1.PatchOptions{FieldManager: fieldManager}, "status")
	}
	if patch := taintPatch(n, m); err == nil && patch != nil {
		_, err = nodes.Patch(ctx, c.node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	}
	if err != nil {
		return noRight(refused(doing, err))
	}
	return nil
}

// noRight says what gives the right to the node's object, where that is missing.
func noRight(err error) error {
	if errors.Is(err, sharing.ErrDenied) {
		return fmt.Errorf("%w; apply deploy/variants/node-health.yaml", err)
	}
	return err
}

// conditionPatch changes one condition: a list that is merged by type.
func conditionPatch(n *corev1.Node, m NodeMark) []byte {
	now := metav1.Now()
	status := corev1.ConditionFalse
	if m.Healthy {
		status = corev1.ConditionTrue
	}
	since := now
	for _, c := range n.Status.Conditions {
		if c.Type == ConditionType && c.Status == status {
			since = c.LastTransitionTime
		}
	}
	var condition any = corev1.NodeCondition{Type: ConditionType, Status: status, Reason: m.Reason, Message: tidy(m.Message), LastHeartbeatTime: now, LastTransitionTime: since}
	if m.Clear {
		condition = map[string]string{"$patch": "delete", "type": ConditionType}
	}
	return encoded(map[string]any{"status": map[string]any{"conditions": []any{condition}}})
}

// taintPatch changes one taint of a list that is written whole, and only if nobody has changed it meanwhile; nil where there
// is nothing to change.
func taintPatch(n *corev1.Node, m NodeMark) []byte {
	ours := func(t corev1.Taint) bool { return t.Key == TaintKey }
	if n == nil || slices.ContainsFunc(n.Spec.Taints, ours) == (m.Taint && !m.Clear) {
		return nil
	}
	taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), ours)
	if m.Taint && !m.Clear {
		taints = append(taints, corev1.Taint{Key: TaintKey, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	return encoded(map[string]any{"metadata": map[string]string{"resourceVersion": n.ResourceVersion}, "spec": map[string]any{"taints": taints}})
}

func encoded(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return nil // plain data of our own: the API server refuses an empty patch
	}
	return data
}
