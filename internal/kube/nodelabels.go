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
	"k8s.io/apimachinery/pkg/types"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// StartTaint is the taint, given to a node as it joins, that keeps pods away until the agent has seen that containers
	// with a GPU can start there. The agent takes it off, and never puts it on.
	StartTaint = "kerf.dev/starting"

	// gfdStamp is a label that NVIDIA's GPU feature discovery gives every node that it describes.
	gfdStamp = "nvidia.com/gfd.timestamp"
	// labelManager owns the labels, so that what is left out of the next write goes.
	labelManager = "kerf-agent-labels"
)

// NodeLabels are what the node's object is to say of its GPUs.
type NodeLabels struct {
	// Own are Kerf's labels, and GFD those under the names of NVIDIA's GPU feature discovery, which are written only
	// where that does not describe the node itself.
	Own, GFD map[string]string
	// Started takes StartTaint off.
	Started bool
}

// LabelNode gives this node its labels, takes off those that it gave it before and that are not wanted any more, and
// leaves all others as they are. It writes nothing where nothing changes. Errors: sharing.ErrDenied, with what gives the right,
// and sharing.ErrUnavailable, also when somebody changed the node's taints meanwhile.
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
		body := encoded(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": c.node, "labels": want}})
		if n, err = nodes.Patch(ctx, c.node, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: labelManager, Force: &force}); err != nil {
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
	if _, err = nodes.Patch(ctx, c.node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return noLabels(refused("take taint "+StartTaint+" off node "+c.node, err))
	}
	return nil
}

// labelled is true where the node has all of want, and we own none beside it.
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
