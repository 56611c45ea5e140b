// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kerf-gpu/kerf/api/gpunode"
)

// gpuNode is what an informer keeps of a GPUNode: as the API server tells it, as maps of maps, it takes several times as
// much memory, which a cluster of many nodes notices.
type gpuNode struct {
	metav1.ObjectMeta

	// status has the GPUs cordoned that the spec names: at once, and not when the agent has heard of it.
	status gpunode.Status
	// unread and specUnread are why there is no status, and why nothing is cordoned.
	unread, specUnread error
}

// readGPUNode is a cache.TransformFunc. What it makes goes through it again after an interrupted watch, and stays as it is.
func readGPUNode(object any) (any, error) {
	o, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	n := &gpuNode{ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}}
	n.unread = fromMap(o, "status", &n.status)
	var spec gpunode.Spec
	if n.specUnread = fromMap(o, "spec", &spec); n.specUnread == nil {
		n.status.Cordon(spec)
	}
	return n, nil
}

// fromMap reads a field of the object; one that is not there, or null, is empty.
func fromMap(o *unstructured.Unstructured, field string, into any) error {
	raw, ok := o.Object[field].(map[string]any)
	if !ok && o.Object[field] != nil {
		return fmt.Errorf("read its %s: it is a %T", field, o.Object[field])
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, into); err != nil {
		return fmt.Errorf("read its %s: %w", field, err)
	}
	return nil
}
