// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kerf-gpu/kerf/scheduler/placeholder"
)

const (
	// reasonPlaceholder of a pod: its request fits some nodes in total, but no single GPU. A placeholder makes the node
	// autoscaler add one.
	reasonPlaceholder = "NodeRequested"
	// settleTime is how long a pod waits before it gets a placeholder. Most pods that wait find room by then.
	settleTime = 30 * time.Second
	// mostPlaceholders bounds the pods that have one at the same time.
	mostPlaceholders = 32
)

// placeholders is the controller of placeholders in the agents' namespace.
func (c *core) placeholders(namespace string, handle fwk.Handle) *placeholder.Controller {
	pods := handle.SharedInformerFactory().Core().V1().Pods().Lister()
	return &placeholder.Controller{
		Client: handle.ClientSet(), Namespace: namespace, Needs: c.needs,
		Pods: func() ([]*corev1.Pod, error) { return pods.Pods(namespace).List(labels.Everything()) },
		Pod:  func(namespace, name string) (*corev1.Pod, error) { return pods.Pods(namespace).Get(name) },
		Created: func(pod *corev1.Pod, name string) {
			handle.EventRecorder().Eventf(pod, nil, corev1.EventTypeNormal, reasonPlaceholder, "Requesting",
				"The request fits nodes in total and no single GPU. Pod %s asks the node autoscaler for a node.", name)
		},
	}
}

// needs are the pods for which a node autoscaler adds no node by itself, those that wait longest first. Pods of gangs
// are none. A scheduler that stands by has no pods that wait.
func (c *core) needs() []placeholder.Need {
	if c.ready() != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	var due []*waiting
	for _, w := range c.waiting.pods {
		if !w.gang && now.Sub(w.pod.CreationTimestamp.Time) >= settleTime {
			due = append(due, w)
		}
	}
	slices.SortFunc(due, func(a, b *waiting) int { return cmp.Compare(a.since, b.since) })
	var out []placeholder.Need
	for _, w := range due[:min(len(due), mostPlaceholders)] {
		if nodes := c.state.Misleading(w.want, now); len(nodes) > 0 {
			out = append(out, placeholder.Need{Pod: w.pod, Nodes: nodes})
		}
	}
	return out
}
