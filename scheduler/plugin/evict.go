// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// evictEvery is how often it is looked for pods that their nodes have no room for.
const evictEvery = 5 * time.Second

// errLater says that a pod is another one by now than it was told of: it is looked at again.
var errLater = errors.New("it has changed meanwhile")

// evicter makes pods leave the nodes that have no room for them. A scheduler that stands by does so too. An eviction is of
// the pod as it was read, and changes it, so that only the first one is carried out, and told.
type evicter struct {
	core   *core
	after  time.Duration
	client clientset.Interface
	events func() events.EventRecorderLogger
	// pod is the pod of the name, as the API server told it last.
	pod func(namespace, name string) (*corev1.Pod, error)
}

// look evicts the pods that are due. One whose eviction fails, as it does while a disruption budget forbids it, is due
// again the next time.
func (e *evicter) look(ctx context.Context) {
	if e.core.ready() != nil {
		return
	}
	e.core.mu.Lock()
	due := e.core.books.Stuck(e.after, e.core.now())
	e.core.mu.Unlock()
	for _, s := range due {
		if err := e.evict(ctx, s); errors.Is(err, errLater) {
			continue
		} else if err != nil {
			klog.FromContext(ctx).Error(err, "A pod that its node has no room for could not be evicted; it is tried again", "pod", klog.KRef(s.Namespace, s.Name), "node", s.Node)
			continue
		}
		e.core.mu.Lock()
		e.core.books.Evicted(s.UID)
		e.core.mu.Unlock()
	}
}

func (e *evicter) evict(ctx context.Context, s scheduler.Stuck) error {
	pod, err := e.pod(s.Namespace, s.Name)
	if apierrors.IsNotFound(err) || err == nil && (string(pod.UID) != s.UID || pod.DeletionTimestamp != nil) {
		return nil // it is gone, or goes
	} else if err != nil {
		return fmt.Errorf("evict pod %s/%s: %w", s.Namespace, s.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	asRead := metav1.NewUIDPreconditions(s.UID)
	asRead.ResourceVersion = &pod.ResourceVersion
	err = e.client.CoreV1().Pods(s.Namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: asRead},
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return errLater
	case err != nil:
		return fmt.Errorf("evict pod %s/%s: %w", s.Namespace, s.Name, err)
	}
	text := fmt.Sprintf("node %s has had no room for it for %v (placementTimeout is %v): %s", s.Node, s.For.Round(time.Second), e.after, s.Reason)
	klog.FromContext(ctx).Info("Evicted a pod that its node has no room for", "pod", klog.KObj(pod), "node", s.Node, "for", s.For, "reason", s.Reason)
	if events := e.events(); events != nil {
		events.Eventf(pod, nil, corev1.EventTypeWarning, reasonUnplaceable, "Evicting", "%s", text)
	}
	return nil
}
