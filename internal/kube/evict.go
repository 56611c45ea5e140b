// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kerf-gpu/kerf/internal/kube/podspec"
	"github.com/kerf-gpu/kerf/sharing"
)

// resyncEvery is how often Resync looks.
const resyncEvery = 10 * time.Second

// uuidLength is that of the UIDs that the API server gives. Kubelet names static pods by a hash of another
// length.
const uuidLength = 36

// IsStatic reports whether the UID is that of a static pod, as kubelet makes it. The API server may not report its end
// (see PodRemoved); only the container runtime knows it.
func IsStatic(podUID string) bool { return len(podUID) != uuidLength }

// PodRemoved asks the API server itself whether the pod is gone for good. Then it is deleted, its name has passed to
// another pod, or all its containers are at their last end. False means that this is unknown. So does an error, which
// wraps sharing.ErrUnavailable, ErrDenied or ErrInvalid. PodRemoved ignores the container of ref.
//
// A static pod is gone only when its mirror is another's: without a mirror the API server knows nothing.
func (c *Client) PodRemoved(ctx context.Context, ref sharing.ContainerRef) (bool, error) {
	if ref.Namespace == "" || ref.Pod == "" || ref.PodUID == "" {
		return false, fmt.Errorf("look up pod %q of %q: it has no UID, namespace or name: %w", ref.PodUID, ref.String(),
			sharing.ErrInvalid)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	p, err := c.core.Pods(ref.Namespace).Get(ctx, ref.Pod, metav1.GetOptions{})
	switch {
	case isAbsent(err, ref.Pod):
		return !IsStatic(ref.PodUID), nil
	case err != nil:
		return false, refused("look up pod "+ref.Namespace+"/"+ref.Pod, err)
	case p.Name != ref.Pod || p.Namespace != ref.Namespace || p.UID == "":
		return false, fmt.Errorf("look up pod %s/%s: the answer is of %q: %w", ref.Namespace, ref.Pod, p.Namespace+"/"+
			p.Name, sharing.ErrUnavailable)
	}
	mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	switch {
	case string(p.UID) == ref.PodUID || mirror == ref.PodUID:
		return podspec.Terminal(p), nil
	case !IsStatic(ref.PodUID):
		return true, nil
	default:
		return mirror != "", nil
	}
}

// isAbsent distinguishes the API server's own "there is no such pod" from the 404 of another server at its address.
// That may be a proxy, a load balancer, or an API server that serves no pods yet.
func isAbsent(err error, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Kind == "pods" && d.Name == name &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// refused puts an error of the client library into Kerf's vocabulary.
func refused(doing string, err error) error {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: %w (%w)", doing, err, sharing.ErrDenied)
	default:
		return fmt.Errorf("%s: %w (%w)", doing, err, sharing.ErrUnavailable)
	}
}

// Resync finds pods whose end was missed, after the first list, and then every ten seconds until ctx ends. It asks the
// API server for each pod of claims that does not run. It calls gone for deleted ones, and repeats that as long as
// claims names the pod.
func (c *Client) Resync(ctx context.Context, claims func() []sharing.ContainerRef, gone func(uid string)) {
	if !c.pods.waitSynced(ctx) {
		return
	}
	known := map[string]bool{}
	tick := time.NewTicker(resyncEvery)
	defer tick.Stop()
	for {
		c.resync(ctx, claims(), known, gone)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// resync is one round, which ends before the next begins. The pods that were found deleted and still have claims are
// known. A UID never comes back, so the API server is not asked again.
func (c *Client) resync(ctx context.Context, claims []sharing.ContainerRef, known map[string]bool,
	gone func(uid string)) {
	ctx, cancel := context.WithTimeout(ctx, resyncEvery)
	defer cancel()
	seen := map[string]bool{}
	for _, ref := range claims {
		if seen[ref.PodUID] {
			continue
		}
		seen[ref.PodUID] = true
		if known[ref.PodUID] || c.ended(ctx, ref) {
			known[ref.PodUID] = true
			gone(ref.PodUID)
		}
	}
	maps.DeleteFunc(known, func(uid string, _ bool) bool { return !seen[uid] })
}

// ended asks after a pod that is not seen running.
func (c *Client) ended(ctx context.Context, ref sharing.ContainerRef) bool {
	if p, ok, _, _ := c.pods.get(ref.PodUID); ok && !p.Terminal {
		return false
	}
	is, err := c.PodRemoved(ctx, ref)
	if err != nil {
		c.log.Debug("failed to look up pod of a grant", "pod", ref.Namespace+"/"+ref.Pod, "uid", ref.PodUID,
			"error", err)
	}
	return is && err == nil
}

// Evict deletes a pod of this node with the grace that it asks for, as kubelet evicts under pressure: no disruption
// budget is asked. A pod that is gone, or whose name another one has, is no error. Of ref the container is not looked
// at. Errors: sharing.ErrUnsupported for a static pod, which only its file ends; sharing.ErrDenied where the agent has
// no right to it, with what gives it; sharing.ErrUnavailable.
//
// It is a deletion and not the API's eviction. An admission policy can restrict deletions to the pods of the agent's
// own node, but sees only the pod's name of an eviction.
func (c *Client) Evict(ctx context.Context, ref sharing.ContainerRef) error {
	doing := "evict pod " + ref.Namespace + "/" + ref.Pod
	if ref.Namespace == "" || ref.Pod == "" || ref.PodUID == "" {
		return fmt.Errorf("%s: it has no UID, namespace or name: %w", doing, sharing.ErrInvalid)
	}
	if IsStatic(ref.PodUID) {
		return fmt.Errorf("%s: a static pod ends when its file is removed from the node: %w", doing,
			sharing.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	uid := types.UID(ref.PodUID)
	err := c.core.Pods(ref.Namespace).Delete(ctx, ref.Pod,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err == nil || isAbsent(err, ref.Pod) {
		return nil
	}
	if apierrors.IsConflict(err) { // the name may be another pod's by now
		if gone, err := c.PodRemoved(ctx, ref); err == nil && gone {
			return nil
		}
	}
	if err = refused(doing, err); errors.Is(err, sharing.ErrDenied) {
		return fmt.Errorf("%w; apply deploy/variants/evict-over-cap.yaml, or choose another onOverCap and onFault", err)
	}
	return err
}
