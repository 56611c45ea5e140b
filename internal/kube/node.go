// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// ConditionType is the condition of a node that says how its GPUs are: True while all are healthy.
	ConditionType = "kerf.dev/GPUsHealthy"
	// formerCondition is the condition's type in earlier versions. The agent removes it.
	formerCondition = "KerfGPUsHealthy"
	// TaintKey is the taint, with effect NoSchedule, of a node with a GPU that is unhealthy or lost.
	TaintKey = "kerf.dev/gpu-unhealthy"
)

// WatchNode sends the keys of this node's taints, first and after each change, or the error (sharing.ErrDenied,
// sharing.ErrUnavailable), until ctx ends. It calls tell from one goroutine at a time.
func (c *Client) WatchNode(ctx context.Context, tell func(taints []string, err error)) {
	nodes := c.core.Nodes()
	follow(ctx, c.log, followed{
		of: &corev1.Node{}, name: "the node", resource: "nodes",
		selector: fields.OneTermEqualSelector("metadata.name", c.node).String(),
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := nodes.List(ctx, o)
			if err != nil && ctx.Err() == nil {
				tell(nil, noRight(refused("read node "+c.node, err)))
			}
			return list, err
		},
		watch: nodes.Watch,
		store: single[*corev1.Node]{
			is: func(n *corev1.Node) {
				keys := make([]string, 0, len(n.Spec.Taints))
				for _, t := range n.Spec.Taints {
					keys = append(keys, t.Key)
				}
				tell(keys, nil)
			},
			gone: func() {}, // a node whose object is gone still runs what it runs
		},
	})
}

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

// MarkNode sets condition and taint of this node, and leaves all others as they are. Errors: sharing.ErrDenied, with
// the way to grant the right, and sharing.ErrUnavailable, also if another client changed the node's taints meanwhile.
func (c *Client) MarkNode(ctx context.Context, m NodeMark) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	nodes, doing := c.core.Nodes(), "mark node "+c.node
	n, err := nodes.Get(ctx, c.node, metav1.GetOptions{})
	if err == nil {
		// The taints are patched as of the version that this makes: as of the one before, the API server would refuse
		// them.
		n, err = nodes.Patch(ctx, c.node, types.StrategicMergePatchType, conditionPatch(n, m),
			metav1.PatchOptions{FieldManager: fieldManager}, "status")
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
	var condition any = corev1.NodeCondition{Type: ConditionType, Status: status, Reason: m.Reason,
		Message: tidy(m.Message), LastHeartbeatTime: now, LastTransitionTime: since}
	if m.Clear {
		condition = map[string]string{"$patch": "delete", "type": ConditionType}
	}
	conditions := []any{condition}
	former := func(c corev1.NodeCondition) bool { return c.Type == formerCondition }
	if slices.ContainsFunc(n.Status.Conditions, former) {
		conditions = append(conditions, map[string]string{"$patch": "delete", "type": formerCondition})
	}
	return encoded(map[string]any{"status": map[string]any{"conditions": conditions}})
}

// taintPatch changes one taint of a list that is written whole, and only if no other client changed it meanwhile; nil
// if nothing changes.
func taintPatch(n *corev1.Node, m NodeMark) []byte {
	ours := func(t corev1.Taint) bool { return t.Key == TaintKey }
	if n == nil || slices.ContainsFunc(n.Spec.Taints, ours) == (m.Taint && !m.Clear) {
		return nil
	}
	taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), ours)
	if m.Taint && !m.Clear {
		taints = append(taints, corev1.Taint{Key: TaintKey, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	return encoded(map[string]any{"metadata": map[string]string{"resourceVersion": n.ResourceVersion},
		"spec": map[string]any{"taints": taints}})
}

func encoded(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return nil // plain data of our own: the API server refuses an empty patch
	}
	return data
}

const (
	// StartTaint is the taint of a new node that keeps pods away until GPU containers can start there. The agent
	// removes it, and never sets it.
	StartTaint = "kerf.dev/agent-not-ready"

	// gfdStamp is a label that NVIDIA's GPU feature discovery gives every node that it describes.
	gfdStamp = "nvidia.com/gfd.timestamp"
	// labelManager owns the labels, so that what is left out of the next write goes.
	labelManager = "kerf-agent-labels"
)

// NodeLabels are what the node's object is to say of its GPUs.
type NodeLabels struct {
	// Own are Kerf's labels, and GFD those under the names of NVIDIA's GPU feature discovery. The latter are written
	// only if that does not describe the node itself.
	Own, GFD map[string]string
	// Started takes StartTaint off.
	Started bool
}

// LabelNode sets this node's labels, removes earlier ones that are no longer wanted, and leaves all others as they
// are. It writes nothing if nothing changes. Errors: sharing.ErrDenied, with the way to grant the right, and
// sharing.ErrUnavailable, also if another client changed the node's taints meanwhile.
func (c *Client) LabelNode(ctx context.Context, l NodeLabels) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	nodes, doing := c.core.Nodes(), "label node "+c.node
	n, err := nodes.Get(ctx, c.node, metav1.GetOptions{})
	if err != nil {
		return noLabels(refused(doing, err))
	}
	want := maps.Clone(l.Own)
	if _, described := n.Labels[gfdStamp]; !described {
		maps.Copy(want, l.GFD)
	}
	if !labelled(n, want) {
		force := true
		body := encoded(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": c.node,
			"labels": want}})
		if n, err = nodes.Patch(ctx, c.node, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: labelManager,
			Force: &force}); err != nil {
			return noLabels(refused(doing, err))
		}
	}
	starting := func(t corev1.Taint) bool { return t.Key == StartTaint }
	if !l.Started || !slices.ContainsFunc(n.Spec.Taints, starting) {
		return nil
	}
	patch := encoded(map[string]any{
		"metadata": map[string]string{"resourceVersion": n.ResourceVersion},
		"spec":     map[string]any{"taints": slices.DeleteFunc(slices.Clone(n.Spec.Taints), starting)},
	})
	if _, err = nodes.Patch(ctx, c.node, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return noLabels(refused("take taint "+StartTaint+" off node "+c.node, err))
	}
	return nil
}

// labelled is true if the node has all of want, and no other label of Kerf.
func labelled(n *corev1.Node, want map[string]string) bool {
	for k, v := range want {
		if has, ok := n.Labels[k]; !ok || has != v {
			return false
		}
	}
	i := slices.IndexFunc(n.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == labelManager })
	return i >= 0 && len(ownedLabels(n.ManagedFields[i])) == len(want)
}

// ownedLabels are the labels that a manager of fields owns.
func ownedLabels(m metav1.ManagedFieldsEntry) map[string]any {
	var owned struct {
		Metadata struct {
			Labels map[string]any `json:"f:labels"`
		} `json:"f:metadata"`
	}
	if m.FieldsV1 == nil || json.Unmarshal(m.FieldsV1.GetRawBytes(), &owned) != nil {
		return nil
	}
	delete(owned.Metadata.Labels, ".")
	return owned.Metadata.Labels
}

// noLabels says what gives the right to the node's labels, where that is missing.
func noLabels(err error) error {
	if errors.Is(err, sharing.ErrDenied) {
		return fmt.Errorf("%w; apply deploy/manifests/10-rbac.yaml, or leave out --node-labels", err)
	}
	return err
}

// OwnLabels are the labels of this node's object, as the API server has them in its cache. Errors: sharing.ErrDenied,
// with what gives the right, and sharing.ErrUnavailable.
func (c *Client) OwnLabels(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	n, err := c.core.Nodes().Get(ctx, c.node, metav1.GetOptions{ResourceVersion: "0"})
	if err == nil {
		c.owner.saw(n.UID)
		return n.Labels, nil
	}
	if err = refused("read the labels of node "+c.node, err); errors.Is(err, sharing.ErrDenied) {
		err = fmt.Errorf("%w; apply deploy/manifests/10-rbac.yaml", err)
	}
	return nil, err
}
