// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// callTimeout bounds each call of the API server.
const callTimeout = 30 * time.Second

// binder takes GPUs for pods, and binds the pods to their nodes.
type binder struct {
	core   *core
	handle fwk.Handle
}

// Reserve implements fwk.ReservePlugin.
func (b *binder) Reserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return nil
	}
	if again := b.reserve(state, c, pod, nodeName); again != nil {
		return b.later(c, pod, again)
	}
	b.core.tryNext()
	return nil
}

func (b *binder) reserve(state fwk.CycleState, c *cycle, pod *corev1.Pod, nodeName string) error {
	b.core.mu.Lock()
	defer b.core.mu.Unlock()
	free, known := c.freeOn(nodeName)
	if !known { // the only node with room
		free = b.freeCPU(nodeName)
	}
	terms := b.core.state.Terms(c.want, nodeName, free, b.core.now())
	plan, err := b.core.state.Reserve(c.want, nodeName, b.core.now())
	if err != nil {
		return err //nolint:wrapcheck // it says which pod, and what could not be reserved
	}
	c.plan, c.terms = plan, terms
	if !state.IsPodGroupSchedulingCycle() { // else it is only tried
		b.core.waiting.remove(pod.UID)
	}
	return nil
}

// later retries a pod whose capacity was gone when it was to be reserved: at once if there is other capacity, else
// when some appears. No one else does, because kube-scheduler does not call PostFilter for such a pod.
func (b *binder) later(c *cycle, pod *corev1.Pod, why error) *fwk.Status {
	if errors.Is(why, sharing.ErrExhausted) {
		b.core.mu.Lock()
		if w := b.core.waiting.pods[pod.UID]; w == nil || !w.gang {
			b.core.waiting.addUntried(waiting{pod: pod, want: c.want, activate: activateBy(b.handle)},
				b.core.state.Fitting(c.want, b.core.now()))
		}
		b.core.mu.Unlock()
		b.core.tryNext()
	}
	return fwk.NewStatus(fwk.Unschedulable, why.Error())
}

// Unreserve implements fwk.ReservePlugin.
func (b *binder) Unreserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) {
	if cycleOf(state) == nil {
		return
	}
	b.core.mu.Lock()
	b.core.state.Unreserve(string(pod.UID))
	b.core.mu.Unlock()
	if !state.IsPodGroupSchedulingCycle() { // what was only tried makes no room
		b.core.wake(nodeName, true)
	}
}

// Bind implements fwk.BindPlugin: the placement travels on the Binding, so that node and GPUs are written at once or
// not at all.
func (b *binder) Bind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	b.core.pacer.binding.Add(1)
	defer b.core.pacer.binding.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if b.core.beforeBinding != nil {
		b.core.beforeBinding(ctx, pod)
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			Annotations: scheduler.Annotations(c.plan)},
		Target: corev1.ObjectReference{Kind: "Node", Name: nodeName},
	}
	err := b.handle.ClientSet().CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
	if err != nil && !b.boundAllTheSame(ctx, pod, nodeName) {
		return fwk.AsStatus(fmt.Errorf("bind pod %s/%s to node %q: %w", pod.Namespace, pod.Name, nodeName, err))
	}
	b.tell(ctx, c, pod, nodeName)
	return nil
}

// boundAllTheSame looks whether a Binding whose answer was an error was carried out: the answer may be what was lost. A
// reservation that was given back then would be given twice.
func (b *binder) boundAllTheSame(ctx context.Context, pod *corev1.Pod, nodeName string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	now, err := b.handle.ClientSet().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "failed to check whether a pod was bound", "pod", klog.KObj(pod), "node",
				nodeName)
		}
		return false
	}
	return now.UID == pod.UID && now.Spec.NodeName == nodeName
}

// tell says in an event and in the log where the pod was placed, and why there.
func (b *binder) tell(ctx context.Context, c *cycle, pod *corev1.Pod, nodeName string) {
	var parts []string
	for _, planned := range c.plan {
		var gpus []string
		for _, f := range planned.Placement {
			amount := fmt.Sprintf("%v of %s", f.Memory, f.GPU)
			switch {
			case !f.MIG.None():
				amount = fmt.Sprintf("%s of %s", f.MIG, f.GPU)
			case f.Whole:
				amount = fmt.Sprintf("all of %s", f.GPU)
			case f.Percent > 0:
				amount = fmt.Sprintf("%v and %v of %s", f.Memory, f.Percent, f.GPU)
			}
			gpus = append(gpus, amount)
		}
		parts = append(parts, planned.Container+": "+strings.Join(gpus, ", "))
	}
	text := strings.Join(parts, "; ")
	best := c.chosen(nodeName)
	attrs := []any{"pod", klog.KObj(pod), "node", nodeName, "placement", text, "nodesWithRoom", best.room, "score",
		best.Score}
	var why []string
	for _, t := range c.terms {
		attrs = append(attrs, "term."+t.Name, t.Value)
		if t.Value != 0 {
			why = append(why, fmt.Sprintf("%s %+d", t.Name, t.Value))
		}
	}
	if len(why) > 0 {
		text += "; score in thousandths of a GPU: " + strings.Join(why, ", ")
	}
	if best.next != nil {
		attrs = append(attrs, "nextNode", best.next.Node, "nextScore", best.next.Score)
	}
	klog.FromContext(ctx).Info("assigned GPUs to pod", attrs...)
	if recorder := b.handle.EventRecorder(); recorder != nil {
		about := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name,
			UID: pod.UID, ResourceVersion: pod.ResourceVersion}
		if !b.core.pacer.add(placed{recorder: recorder, pod: about, node: nodeName, text: text}) {
			klog.FromContext(ctx).Info("dropped event of a placement because the queue is full", "pod", klog.KObj(pod))
		}
	}
}

// freeCPU is what the snapshot of the cycle has; 0 where it does not know the node.
func (b *binder) freeCPU(nodeName string) cluster.Milli {
	info, err := b.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return 0
	}
	return freeCPU(info)
}
