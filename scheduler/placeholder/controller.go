// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package placeholder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	// Every is how often the controller looks for pods that need a node.
	Every = 10 * time.Second
	// callTimeout bounds one call of the API server.
	callTimeout = 10 * time.Second
)

// Controller creates and deletes placeholders. Its functions answer from caches.
type Controller struct {
	Client clientset.Interface
	// Namespace is that of the agents. The placeholders are there, too.
	Namespace string
	// Needs are the pods that need a node.
	Needs func() []Need
	// Pods are those of Namespace.
	Pods func() ([]*corev1.Pod, error)
	// Pod is the pod of this name.
	Pod func(namespace, name string) (*corev1.Pod, error)
	// Created reports a placeholder to the user of its pod.
	Created func(pod *corev1.Pod, placeholder string)
}

// Reconcile brings the placeholders up to date. What fails is tried again the next time.
func (c *Controller) Reconcile(ctx context.Context) {
	pods, err := c.Pods()
	if err == nil {
		err = c.apply(ctx, plan(pods, c.Needs(), c.done, isAgent))
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "failed to update placeholders, will retry")
	}
}

// Binding removes the placeholder of a pod, if there is one, just before the pod gets its node. After that, an
// autoscaler would count both, and add a second node. What fails, Reconcile tries again.
func (c *Controller) Binding(ctx context.Context, pod *corev1.Pod) {
	p, err := c.Pod(c.Namespace, nameOf(pod))
	if err == nil && p.Labels[labelFor] == string(pod.UID) {
		err = c.remove(ctx, p)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "failed to remove placeholder, will retry", "pod", klog.KObj(pod))
	}
}

// isAgent reports whether the pod is one of kerf-agent that has a node.
func isAgent(p *corev1.Pod) bool {
	return p.Labels["app.kubernetes.io/name"] == "kerf-agent" && p.Spec.NodeName != ""
}

// done reports whether the pod of a placeholder has a node, has ended, or is gone.
func (c *Controller) done(placeholder *corev1.Pod) bool {
	namespace, name, _ := strings.Cut(placeholder.Annotations[annotationFor], "/")
	p, err := c.Pod(namespace, name)
	if apierrors.IsNotFound(err) {
		return true
	}
	return err == nil && (string(p.UID) != placeholder.Labels[labelFor] || p.Spec.NodeName != "" ||
		p.DeletionTimestamp != nil)
}

// apply marks agents before it creates placeholders, so that none is there before its nodes are excluded.
func (c *Controller) apply(ctx context.Context, s steps) error {
	var errs []error
	marked := true
	for _, m := range s.mark {
		err := c.label(ctx, m, "true")
		marked = marked && err == nil
		errs = append(errs, err)
	}
	for _, made := range s.create {
		if marked {
			errs = append(errs, c.create(ctx, made))
		}
	}
	for _, p := range s.remove {
		errs = append(errs, c.remove(ctx, p))
	}
	for _, m := range s.unmark {
		errs = append(errs, c.label(ctx, m, nil))
	}
	return errors.Join(errs...)
}

// create makes a placeholder and says in its status what a scheduler would say. An autoscaler reads that.
func (c *Controller) create(ctx context.Context, made creation) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	name := made.placeholder.Name
	_, err := c.Client.CoreV1().Pods(c.Namespace).Create(ctx, made.placeholder, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create placeholder of pod %s: %w", klog.KObj(made.of), err)
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "needs a new node for pod " + klog.KObj(made.of).String(), LastTransitionTime: metav1.Now()}}}})
	if err != nil {
		return fmt.Errorf("encode status of placeholder: %w", err)
	}
	if _, err := c.Client.CoreV1().Pods(c.Namespace).Patch(ctx, name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("set status of placeholder %q: %w", name, err)
	}
	c.Created(made.of, c.Namespace+"/"+name)
	return nil
}

// remove deletes a placeholder.
func (c *Controller) remove(ctx context.Context, p *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := c.Client.CoreV1().Pods(c.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete placeholder %q: %w", p.Name, err)
	}
	return nil
}

// label sets a label of an agent; nil removes it.
func (c *Controller) label(ctx context.Context, m mark, value any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{m.label: value}}})
	if err != nil {
		return fmt.Errorf("encode label: %w", err)
	}
	_, err = c.Client.CoreV1().Pods(c.Namespace).Patch(ctx, m.agent.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("label agent %q: %w", m.agent.Name, err)
	}
	return nil
}
