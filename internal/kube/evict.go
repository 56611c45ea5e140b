// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kerf-gpu/kerf/sharing"
)

// Evict deletes a pod of this node with the grace that it asks for, as kubelet evicts under pressure: no disruption
// budget is asked. A pod that is gone, or whose name another one has, is no error. Of ref the container is not looked
// at. Errors: sharing.ErrUnsupported for a static pod, which only its file ends; sharing.ErrDenied where the agent has
// no right to it, with what gives it; sharing.ErrUnavailable.
//
// It is a deletion and not the API's eviction because an admission policy can hold deletions to the pods of the
// agent's own node, and sees of an eviction only the pod's name.
func (c *Client) Evict(ctx context.Context, ref sharing.ContainerRef) error {
	doing := "evict pod " + ref.Namespace + "/" + ref.Pod
	if ref.Namespace == "" || ref.Pod == "" || ref.PodUID == "" {
		return fmt.Errorf("%s: it has no UID, namespace or name: %w", doing, sharing.ErrInvalid)
	}
	if IsStatic(ref.PodUID) {
		return fmt.Errorf("%s: a static pod ends when its file is removed from the node: %w", doing, sharing.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	uid := types.UID(ref.PodUID)
	err := c.core.Pods(ref.Namespace).Delete(ctx, ref.Pod, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err == nil || isAbsent(err, ref.Pod) {
		return nil
	}
	if apierrors.IsConflict(err) { // the name may be another pod's by now
		if gone, err := c.Gone(ctx, ref); err == nil && gone {
			return nil
		}
	}
	if err = refused(doing, err); errors.Is(err, sharing.ErrDenied) {
		return fmt.Errorf("%w; apply deploy/variants/evict-over-cap.yaml, or choose another overCap and onFault", err)
	}
	return err
}
