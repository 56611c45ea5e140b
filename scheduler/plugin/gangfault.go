// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/kerf-gpu/kerf/api/gpunode"
)

const (
	// gangEvery is how often it is looked for gangs that have lost a pod to a faulty GPU.
	gangEvery = time.Second
	// leftFor is how long a deleted pod of a gang is remembered, and mostLeft how many are: a node may report it later.
	leftFor  = 10 * time.Minute
	mostLeft = 20000
	// gangFault is the reason in the status of a pod that ends with its gang.
	gangFault = "GPUFault"
	// mostReason is the most bytes of a node's reason that are repeated.
	mostReason = 500
)

// member is what is remembered of a pod of a gang that is gone.
type member struct {
	group types.NamespacedName
	node  string
	gone  time.Time
}

// gangs ends the pods of a gang that lost one to a faulty GPU. The node's agent ended that one, and may not touch
// pods of other nodes. A node's report counts for its own pods alone: the API server determines the gang.
//
// A scheduler that stands by does so too: a pod is ended as it was read, so that of several one ends it.
type gangs struct {
	core   *core
	client clientset.Interface
	events func() events.EventRecorderLogger
	// pods are those of a namespace that have not ended, as the API server last reported.
	pods func(namespace string) ([]*corev1.Pod, error)
	// done are the pods, by UID, whose gangs have been dealt with.
	done map[string]bool
}

// loss is a pod that a node ends for a fault.
type loss struct {
	gpunode.TerminatingPod
	node string
}

// look deals with each loss once. What fails is tried again the next time.
func (g *gangs) look(ctx context.Context) {
	if g.core.ready() != nil {
		return
	}
	if g.done == nil {
		g.done = map[string]bool{}
	}
	for _, l := range g.core.lost.open(g.done) {
		if err := g.together(ctx, l); errors.Is(err, errLater) {
			continue
		} else if err != nil {
			klog.FromContext(ctx).Error(err,
				"failed to evict a gang that lost a pod to a faulty GPU, will retry", "pod",
				klog.KRef(l.Namespace, l.Pod), "node", l.node)
			continue
		}
		g.done[l.PodUID] = true
	}
}

// losses are the pods that faults end. It has a separate lock.
type losses struct {
	now func() time.Time

	mu sync.Mutex
	// ending are the pods that nodes end for a fault, by node, and left the pods of gangs that are gone, by UID.
	ending map[string][]gpunode.TerminatingPod
	left   map[types.UID]member
}

func newLosses(now func() time.Time) *losses {
	return &losses{now: now, ending: map[string][]gpunode.TerminatingPod{}, left: map[types.UID]member{}}
}

// reported takes note of the pods that a node ends now; none for a node that says nothing any more.
func (l *losses) reported(node string, ending []gpunode.TerminatingPod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.ending, node); len(ending) > 0 {
		l.ending[node] = ending
	}
}

// leave remembers a pod of a gang that is gone.
func (l *losses) leave(p *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name := groupName(p); name != "" && p.Spec.NodeName != "" && len(l.left) < mostLeft {
		l.left[p.UID] = member{group: types.NamespacedName{Namespace: p.Namespace, Name: name}, node: p.Spec.NodeName,
			gone: l.now()}
	}
}

// member is what is remembered of a pod that is gone; empty where that is nothing.
func (l *losses) member(uid types.UID) member {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left[uid]
}

// open are the losses that are not done with, in the order of their UIDs. done forgets those that no node tells of any
// more.
func (l *losses) open(done map[string]bool) []loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	reported, todo := map[string]bool{}, []loss{}
	for node, list := range l.ending {
		for _, e := range list {
			reported[e.PodUID] = true
			if !done[e.PodUID] {
				todo = append(todo, loss{TerminatingPod: e, node: node})
			}
		}
	}
	maps.DeleteFunc(done, func(uid string, _ bool) bool { return !reported[uid] })
	maps.DeleteFunc(l.left, func(_ types.UID, m member) bool { return l.now().Sub(m.gone) > leftFor })
	slices.SortFunc(todo, func(a, b loss) int {
		return cmp.Or(cmp.Compare(a.PodUID, b.PodUID),
			cmp.Compare(a.node, b.node))
	})
	return todo
}

// together ends what is left of the gang of a pod that a fault has ended. It is errLater while that pod has not ended
// yet: its GPU may be well again before.
func (g *gangs) together(ctx context.Context, l loss) error {
	since, err := time.Parse(time.RFC3339, l.Since)
	if err != nil {
		return nil //nolint:nilerr // an agent that says no time says nothing that can be acted upon
	}
	pods, err := g.pods(l.Namespace)
	if err != nil {
		return fmt.Errorf("look up the pods of namespace %s: %w", l.Namespace, err)
	}
	group, err := g.groupOf(l, pods)
	if err != nil || group.Name == "" {
		return err
	}
	least, err := g.least(ctx, group)
	if err != nil || least == 0 {
		return err
	}
	// Pods that were created after the fault are no part of the loss: a controller replaces the gang with them. Both
	// times are in whole seconds. A pod of the same second was there, because the lost one had yet to end.
	members := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool {
		return groupName(p) != group.Name || string(p.UID) == l.PodUID || p.Spec.NodeName == "" ||
			p.DeletionTimestamp != nil || p.CreationTimestamp.Time.After(since)
	})
	if len(members) >= least {
		klog.FromContext(ctx).Info("gang continued without a pod that a faulty GPU ended", "podGroup",
			klog.KRef(group.Namespace, group.Name), "pods", len(members), "wanted", least)
		return nil
	}
	var errs []error
	for _, p := range members {
		errs = append(errs, g.end(ctx, p, group, l))
	}
	return errors.Join(errs...)
}

// groupOf is the PodGroup of the pod that a node ends. It is empty if it has none or is not the node's, and errLater
// while it has not ended.
func (g *gangs) groupOf(l loss, pods []*corev1.Pod) (types.NamespacedName, error) {
	for _, p := range pods {
		switch {
		case string(p.UID) != l.PodUID:
			continue
		case p.Spec.NodeName != l.node || groupName(p) == "":
			return types.NamespacedName{}, nil
		case p.DeletionTimestamp == nil:
			return types.NamespacedName{}, errLater
		}
		return types.NamespacedName{Namespace: p.Namespace, Name: groupName(p)}, nil
	}
	if m := g.core.lost.member(types.UID(l.PodUID)); m.node == l.node && m.group.Namespace == l.Namespace {
		return m.group, nil
	}
	return types.NamespacedName{}, nil
}

// least is how many pods of a group go on without those that it lost; 0 where each goes on by itself.
func (g *gangs) least(ctx context.Context, group types.NamespacedName) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pg, err := g.client.SchedulingV1beta1().PodGroups(group.Namespace).Get(ctx, group.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("look up pod group %s: %w", group, err)
	}
	return leastOf(pg), nil
}

func leastOf(pg *schedulingv1beta1.PodGroup) int {
	const allOfThem = 1 << 30
	switch m := pg.Spec.DisruptionMode; {
	case m != nil && m.All != nil:
		return allOfThem
	case pg.Spec.SchedulingPolicy.Gang != nil:
		return int(pg.Spec.SchedulingPolicy.Gang.MinCount)
	}
	return 0
}

// end ends one pod of the gang, and says why.
func (g *gangs) end(ctx context.Context, p *corev1.Pod, group types.NamespacedName, l loss) error {
	reason := l.Reason
	if len(reason) > mostReason {
		reason = strings.ToValidUTF8(reason[:mostReason], "") + "..."
	}
	why := fmt.Sprintf("The pod ends with its gang %s because a faulty GPU of node %s ended pod %s: %s.", group.Name,
		l.node, l.Pod, reason)
	if err := disrupt(ctx, g.client, p, p.ResourceVersion, gangFault, Name+": "+why, g.core.now()); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("evicted pod whose gang lost a pod to a faulty GPU", "pod", klog.KObj(p), "podGroup",
		klog.KRef(group.Namespace, group.Name), "lost", klog.KRef(l.Namespace, l.Pod), "node", l.node)
	if events := g.events(); events != nil {
		events.Eventf(p, nil, corev1.EventTypeWarning, reasonGangFailed, "Evicting", "%s", why)
	}
	return nil
}

// groupName is the name of a pod's group, empty without one.
func groupName(p *corev1.Pod) string {
	if s := p.Spec.SchedulingGroup; s != nil && s.PodGroupName != nil {
		return *s.PodGroupName
	}
	return ""
}
