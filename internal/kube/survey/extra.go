// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kerf-gpu/kerf/internal/kube/access"
)

// Life is what matters for the end of a pod.
type Life struct {
	// OwnerUID is the UID of the controller that would replace it; empty if there is none.
	OwnerUID string
	// PriorityClass is the name of its priority class.
	PriorityClass string
	// Started is when kubelet accepted it; zero before.
	Started time.Time
	// Ready is its condition, Ending is true while it is being deleted.
	Ready, Ending bool
	// DoNotDisrupt is the value of Karpenter's annotation.
	DoNotDisrupt string
	// Gang is true for a member of a gang.
	Gang bool
}

// karpenterAnnotation asks that a pod is not disrupted.
const karpenterAnnotation = "karpenter.sh/do-not-disrupt"

func life(p *corev1.Pod) Life {
	l := Life{PriorityClass: p.Spec.PriorityClassName, Ending: p.DeletionTimestamp != nil,
		DoNotDisrupt: p.Annotations[karpenterAnnotation], Gang: p.Spec.SchedulingGroup != nil}
	if p.Status.StartTime != nil {
		l.Started = p.Status.StartTime.Time
	}
	for _, c := range p.Status.Conditions {
		l.Ready = l.Ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}
	if o := metav1.GetControllerOf(p); o != nil {
		l.OwnerUID = string(o.UID)
	}
	return l
}

// PodsOf are the pods of one namespace that are not at their end.
func PodsOf(ctx context.Context, api *access.Client, namespace string) ([]Pod, error) {
	return pods(ctx, api, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/pods")
}

// Namespaces are the names of the namespaces with a label of the value.
func Namespaces(ctx context.Context, api *access.Client, label, value string) ([]string, error) {
	var out []string
	err := api.List(ctx, "/api/v1/namespaces", url.Values{"labelSelector": {label + "=" + value}},
		func(raw json.RawMessage) error {
			var n struct{ Metadata struct{ Name string } }
			err := json.Unmarshal(raw, &n)
			out = append(out, n.Metadata.Name)
			return err
		})
	return out, err
}

// DisruptionBudget is a disruption budget.
type DisruptionBudget struct {
	Namespace string
	// Allowed is how many pods may be disrupted now.
	Allowed  int
	selector labels.Selector
}

// Covers reports whether the budget is for a pod.
func (b *DisruptionBudget) Covers(p *Pod) bool {
	return p.Namespace == b.Namespace && b.selector.Matches(labels.Set(p.Labels))
}

// Budgets are all disruption budgets.
func Budgets(ctx context.Context, api *access.Client) ([]DisruptionBudget, error) {
	var out []DisruptionBudget
	err := api.List(ctx, "/apis/policy/v1/poddisruptionbudgets", nil, func(raw json.RawMessage) error {
		var b policyv1.PodDisruptionBudget
		if err := json.Unmarshal(raw, &b); err != nil {
			return err
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			return fmt.Errorf("read selector of poddisruptionbudget %s/%s: %w", b.Namespace, b.Name, err)
		}
		out = append(out, DisruptionBudget{b.Namespace, int(b.Status.DisruptionsAllowed), selector})
		return nil
	})
	return out, err
}
