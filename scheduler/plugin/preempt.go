// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// mostNodes bounds the nodes on which victims are looked for.
const mostNodes = 100

// preemptor makes less important pods give way.
type preemptor struct {
	core   *core
	handle fwk.Handle
	// budgets are the disruption budgets of a namespace.
	budgets func(namespace string) ([]*policyv1.PodDisruptionBudget, error)
}

// sacrifice is what makes room on one node.
type sacrifice struct {
	node    fwk.NodeInfo
	victims []scheduler.Victim
	pods    []*corev1.Pod
}

// preempt evicts the fewest and least important pods of one node, and returns the node. It is empty when there is none,
// or when pods are being evicted already.
func (p *preemptor) preempt(ctx context.Context, state fwk.CycleState, c *cycle, pod *corev1.Pod,
	statuses fwk.NodeToStatusReader) string {
	if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever || statuses == nil {
		return ""
	}
	nodes, err := statuses.NodesForStatusCode(p.handle.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	if err != nil {
		klog.FromContext(ctx).Error(err, "failed to find a node for preemption", "pod", klog.KObj(pod))
		return ""
	}
	var best *sacrifice
	for _, node := range nodes[:min(len(nodes), mostNodes)] {
		s := p.sacrifice(ctx, c, node)
		if s == nil || best != nil && scheduler.Cheaper(s.victims, best.victims) >= 0 || !p.helps(ctx, state, pod, s) {
			continue
		}
		for _, victim := range s.pods {
			if victim.DeletionTimestamp != nil {
				return "" // room comes as it is
			}
		}
		best = s
	}
	if best == nil {
		return ""
	}
	for _, victim := range best.pods {
		if err := p.evict(ctx, pod, victim, best.node.Node().Name); err != nil {
			klog.FromContext(ctx).Error(err, "failed to preempt pod", "pod", klog.KObj(victim), "for",
				klog.KObj(pod))
			return ""
		}
	}
	return best.node.Node().Name
}

// sacrifice is the smallest preemption that makes room on a node, by the cluster state.
func (p *preemptor) sacrifice(ctx context.Context, c *cycle, node fwk.NodeInfo) *sacrifice {
	var candidates []scheduler.Victim
	pods := map[string]*corev1.Pod{}
	now := p.core.now()
	for _, info := range node.GetPods() {
		pod := info.GetPod()
		v := p.victim(ctx, pod)
		candidates = append(candidates, v)
		pods[v.UID] = pod
	}
	p.core.mu.Lock()
	defer p.core.mu.Unlock()
	s := &sacrifice{node: node, victims: p.core.state.Victims(c.want, node.Node().Name, candidates, now)}
	for _, v := range s.victims {
		s.pods = append(s.pods, pods[v.UID])
	}
	if len(s.pods) == 0 {
		return nil
	}
	return s
}

// victim is what the end of a pod would cost.
func (p *preemptor) victim(ctx context.Context, pod *corev1.Pod) scheduler.Victim {
	v := scheduler.Victim{UID: string(pod.UID), Protected: p.protected(ctx, pod)}
	if pod.Spec.Priority != nil {
		v.Priority = *pod.Spec.Priority
	}
	if pod.Status.StartTime != nil {
		v.Cost = max(0, int64(p.core.now().Sub(pod.Status.StartTime.Time).Seconds()))
	}
	return v
}

// protected is true for a pod whose end now would break a disruption budget, and if that is unknown.
func (p *preemptor) protected(ctx context.Context, pod *corev1.Pod) bool {
	list, err := p.budgets(pod.Namespace)
	if err != nil {
		klog.FromContext(ctx).Error(err, "failed to read disruption budgets", "namespace", pod.Namespace)
		return true
	}
	for _, b := range list {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && !selector.Empty() && selector.Matches(labels.Set(pod.Labels)) &&
			b.Status.DisruptionsAllowed <= 0 {
			return true
		}
	}
	return false
}

// helps asks the other plugins whether the pod fits once the victims are gone.
func (p *preemptor) helps(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, s *sacrifice) bool {
	then, node := state.Clone(), s.node.Snapshot()
	for _, victim := range s.pods {
		for _, info := range s.node.GetPods() {
			if info.GetPod().UID != victim.UID {
				continue
			}
			if node.RemovePod(klog.FromContext(ctx), victim) != nil || !p.handle.RunPreFilterExtensionRemovePod(ctx,
				then, pod, info, node).IsSuccess() {
				return false
			}
		}
	}
	return p.handle.RunFilterPluginsWithNominatedPods(ctx, then, pod, node).IsSuccess()
}

// evict ends a pod, and says why in its status and in an event.
func (p *preemptor) evict(ctx context.Context, pod, victim *corev1.Pod, node string) error {
	if p.handle.RejectWaitingPod(victim.UID) {
		return nil
	}
	why := fmt.Sprintf("%s: Pod %s/%s has a higher priority and takes the place on node %s.", Name, pod.Namespace,
		pod.Name,
		node)
	// another pod of the name
	if err := disrupt(ctx, p.handle.ClientSet(), victim, "", corev1.PodReasonPreemptionByScheduler, why,
		p.core.now()); err != nil && !errors.Is(err, errLater) {
		return err
	}
	klog.FromContext(ctx).Info("preempted pod", "pod", klog.KObj(victim), "for", klog.KObj(pod), "node", node)
	if events := p.handle.EventRecorder(); events != nil {
		events.Eventf(victim, pod, corev1.EventTypeNormal, reasonPreempted, "Preempting", "%s", why)
	}
	return nil
}

// disrupt ends a pod with its grace period, and writes the reason into its status, for controllers that read it. It is
// errLater if the name is another pod's by now, or the pod has another version than this; it ignores an empty version.
// A pod that is gone is no error. It checks no disruption budget: that is for the caller.
func disrupt(ctx context.Context, client clientset.Interface, victim *corev1.Pod, version, reason, why string,
	now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	is := map[string]any{"uid": victim.UID}
	if version != "" {
		is["resourceVersion"] = version
	}
	patch, err := json.Marshal(map[string]any{"metadata": is,
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: why,
			LastTransitionTime: metav1.NewTime(now),
		}}}})
	if err != nil {
		return fmt.Errorf("evict pod %s/%s: %w", victim.Namespace, victim.Name, err)
	}
	pods := client.CoreV1().Pods(victim.Namespace)
	if _, err = pods.Patch(ctx, victim.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
		"status"); err == nil {
		err = pods.Delete(ctx, victim.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(victim.UID))})
	}
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return errLater
	}
	return fmt.Errorf("evict pod %s/%s: %w", victim.Namespace, victim.Name, err)
}

// evictEvery is how often it is looked for pods that their nodes have no room for.
const evictEvery = 5 * time.Second

// errLater says that a pod changed since it was read: read it again.
var errLater = errors.New("it has changed meanwhile")

// evicter evicts pods from nodes that have no room for them. A standby scheduler does so too. An eviction names the
// pod as it was read and changes it, so only the first one has an effect and an event.
type evicter struct {
	core   *core
	after  time.Duration
	client clientset.Interface
	events func() events.EventRecorderLogger
	// pod is the pod of the name, as the API server last reported.
	pod func(namespace, name string) (*corev1.Pod, error)
}

// look evicts the pods that are due. One whose eviction fails, as it does while a disruption budget forbids it, is due
// again the next time.
func (e *evicter) look(ctx context.Context) {
	if e.core.ready() != nil {
		return
	}
	e.core.mu.Lock()
	due := e.core.state.Stuck(e.after, e.core.now())
	e.core.mu.Unlock()
	for _, s := range due {
		if err := e.evict(ctx, s); errors.Is(err, errLater) {
			continue
		} else if err != nil {
			klog.FromContext(ctx).Error(err,
				"failed to evict pod that its node could not place, will retry", "pod",
				klog.KRef(s.Namespace, s.Name), "node", s.Node)
			continue
		}
		e.core.mu.Lock()
		e.core.state.Evicted(s.UID)
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
	text := fmt.Sprintf("Node %s could not place the pod for %v (placementTimeout is %v): %s", s.Node,
		s.For.Round(time.Second), e.after, s.Reason)
	klog.FromContext(ctx).Info("evicted pod that its node could not place", "pod", klog.KObj(pod), "node", s.Node,
		"for", s.For, "reason", s.Reason)
	if events := e.events(); events != nil {
		events.Eventf(pod, nil, corev1.EventTypeWarning, reasonTimeout, "Evicting", "%s", text)
	}
	return nil
}
