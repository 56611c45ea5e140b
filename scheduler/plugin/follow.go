// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/kube/podspec"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

const (
	// leaseNamespace is where the agents' heartbeats are, and leasePrefix what stands before the node's name.
	leaseNamespace = "kerf-system"
	leasePrefix    = "kerf-node-"
	// leaderLease is the lease of the scheduler that decides, in leaseNamespace.
	leaderLease = "kerf-scheduler"
	// startTimeout is how long the start waits for the first lists.
	startTimeout = 60 * time.Second
)

// follow updates the cluster state from the API server until ctx ends. GPUNodes and Leases are complete when it
// returns. Pods and nodes come through the scheduler's informers, which start later.
func (c *core) follow(ctx context.Context, handle fwk.Handle) error {
	client, err := dynamic.NewForConfig(handle.KubeConfig())
	if err != nil {
		return fmt.Errorf("follow the gpunodes: %w", err)
	}
	shared := handle.SharedInformerFactory()
	gpuNodes := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).
		ForResource(schema.GroupVersionResource{Group: gpunode.Group, Version: gpunode.Version,
			Resource: gpunode.Resource}).Informer()
	leases := informers.NewSharedInformerFactoryWithOptions(handle.ClientSet(), 0,
		informers.WithNamespace(leaseNamespace)).
		Coordination().V1().Leases().Informer()
	for _, f := range []struct {
		what     string
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
		slim     cache.TransformFunc // of an informer of our own
	}{
		{"gpunodes", gpuNodes, c.gpuNodes(ctx), readGPUNode},
		{"leases", leases, c.leases(), dropWriters},
		{"nodes", shared.Core().V1().Nodes().Informer(), c.nodes(), nil},
		{"pods", shared.Core().V1().Pods().Informer(), c.pods(), nil},
	} {
		if f.slim != nil {
			if err := f.informer.SetTransform(f.slim); err != nil {
				return fmt.Errorf("follow the %s: %w", f.what, err)
			}
		}
		registered, err := f.informer.AddEventHandler(f.handler)
		if err != nil {
			return fmt.Errorf("follow the %s: %w", f.what, err)
		}
		c.synced = append(c.synced, registered.HasSynced)
		if f.slim == nil {
			continue
		}
		c.running.Go(func() { f.informer.RunWithContext(ctx) })
		wait, cancel := context.WithTimeout(ctx, startTimeout)
		ok := cache.WaitForCacheSync(wait.Done(), registered.HasSynced)
		cancel()
		if !ok {
			return fmt.Errorf(
				"follow the %s: no list of them within %v; are the manifests applied, and the scheduler's rights?",
				f.what, startTimeout)
		}
	}
	return nil
}

// of gives handlers the object of their type, also from a deletion that was not seen.
func of[T any](object any) (T, bool) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	out, ok := object.(T)
	return out, ok
}

func handlers[T any](set, gone func(T)) cache.ResourceEventHandler {
	call := func(do func(T)) func(any) {
		return func(object any) {
			if o, ok := of[T](object); ok {
				do(o)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: call(set), UpdateFunc: func(_, o any) { call(set)(o) },
		DeleteFunc: call(gone)}
}

func (c *core) gpuNodes(ctx context.Context) cache.ResourceEventHandler {
	return handlers(func(n *gpuNode) {
		if n.unread != nil {
			klog.FromContext(ctx).Error(n.unread, "failed to read GPUNode, its node gets no new pods", "node",
				n.Name)
			c.change(n.Name, func() { c.state.NoReport(n.Name) })
			return
		}
		if n.specUnread != nil {
			klog.FromContext(ctx).Error(n.specUnread, "failed to read cordoned GPUs of GPUNode", "node",
				n.Name)
		}
		c.lost.reported(n.Name, n.status.TerminatingPods)
		c.change(n.Name, func() { c.state.Report(n.Name, n.status) })
	}, func(n *gpuNode) {
		c.lost.reported(n.Name, nil)
		c.change(n.Name, func() { c.state.NoReport(n.Name) })
	})
}

// dropWriters is a cache.TransformFunc: of who wrote which field of a heartbeat nothing is read.
func dropWriters(object any) (any, error) {
	if l, ok := object.(*coordinationv1.Lease); ok {
		l.ManagedFields = nil
	}
	return object, nil
}

func (c *core) leases() cache.ResourceEventHandler {
	return handlers(func(l *coordinationv1.Lease) {
		if l.Name == leaderLease {
			holder := ""
			if l.Spec.HolderIdentity != nil {
				holder = *l.Spec.HolderIdentity
			}
			c.rules.Led(holder)
			return
		}
		node, ours := strings.CutPrefix(l.Name, leasePrefix)
		if !ours || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
			return
		}
		valid := time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
		c.change(node, func() { c.state.Heartbeat(node, l.Spec.RenewTime.Time, valid, c.now()) })
	}, func(*coordinationv1.Lease) {})
}

func (c *core) nodes() cache.ResourceEventHandler {
	var known = map[string]scheduler.Machine{} // the handler's own: one goroutine calls it
	return handlers(func(n *corev1.Node) {
		m := machineOf(n)
		if old, ok := known[n.Name]; ok && old.CPU == m.CPU && old.Memory == m.Memory &&
			maps.Equal(old.Allocatable, m.Allocatable) {
			return
		}
		known[n.Name] = m
		c.change(n.Name, func() { c.state.Machine(n.Name, m) })
	}, func(n *corev1.Node) {
		delete(known, n.Name)
		c.change(n.Name, func() { c.state.NoNode(n.Name) })
	})
}

func machineOf(n *corev1.Node) scheduler.Machine {
	a := n.Status.Allocatable
	m := scheduler.Machine{CPU: cluster.Milli(a.Cpu().MilliValue()), Memory: sharing.Bytes(max(0, a.Memory().Value())),
		Allocatable: map[string]int64{}}
	for name, q := range a {
		if strings.HasPrefix(string(name), sharing.Domain+"/") {
			m.Allocatable[string(name)] = q.Value()
		}
	}
	return m
}

func (c *core) pods() cache.ResourceEventHandler {
	return handlers(func(p *corev1.Pod) {
		if !asks(p) {
			return
		}
		if p.Spec.NodeName == "" {
			c.changed(p)
			return
		}
		if c.confirmed(p) {
			return
		}
		w, ok, err := wantOf(p)
		if !ok || err != nil {
			return // a node refuses it, so that it holds nothing
		}
		c.change(p.Spec.NodeName, func() {
			c.waiting.remove(p.UID)
			c.state.Pod(podspec.Convert(p), w, c.now())
		})
	}, func(p *corev1.Pod) {
		c.lost.leave(p)
		c.change(p.Spec.NodeName, func() {
			c.waiting.remove(p.UID)
			c.state.ForgetClaims(string(p.UID), p.Spec.NodeName != "")
			c.state.PodRemoved(string(p.UID), c.now())
		})
	})
}

// confirmed is true for a pod that stays where the cluster state has it: it is only bound there now.
func (c *core) confirmed(p *corev1.Pod) bool {
	if podspec.Terminal(p) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.state.Confirm(string(p.UID), p.Spec.NodeName) {
		return false
	}
	c.waiting.remove(p.UID)
	return true
}

// changed has a pod that waits tried again when its annotations changed, which say which GPUs it wants.
func (c *core) changed(p *corev1.Pod) {
	c.mu.Lock()
	w := c.waiting.pods[p.UID]
	again := w != nil && !maps.Equal(w.pod.Annotations, p.Annotations)
	c.mu.Unlock()
	if again {
		w.activate(map[string]*corev1.Pod{p.Namespace + "/" + p.Name: p})
	}
}

// change makes a change to the cluster state of one node, and retries those pods that fit there now.
func (c *core) change(node string, do func()) {
	c.mu.Lock()
	before := scheduler.Capacity{}
	if c.waiting.gangs > 0 {
		before = c.state.Capacity(node, c.now())
	}
	do()
	more := c.waiting.gangs > 0 && c.state.Capacity(node, c.now()).More(before)
	c.mu.Unlock()
	c.wake(node, more)
}

// wake has those pods tried again that wait, and fit on the node; those of a gang only where there is more room than
// before.
func (c *core) wake(node string, more bool) {
	c.mu.Lock()
	found := append(c.waiting.look(node, more), c.waiting.next()...)
	c.mu.Unlock()
	activate(found)
}

// tryNext has those pods tried whose turn it is.
func (c *core) tryNext() {
	c.mu.Lock()
	found := c.waiting.next()
	c.mu.Unlock()
	activate(found)
}

// heard tells that something came of a pod that was tried again, whatever that was.
func (c *core) heard(uid types.UID) {
	c.mu.Lock()
	c.waiting.heard(uid)
	c.mu.Unlock()
	c.tryNext()
}

func activate(pods []waiting) {
	for _, w := range pods {
		w.activate(map[string]*corev1.Pod{w.pod.Namespace + "/" + w.pod.Name: w.pod})
	}
}

// activateBy has pods tried again. It is called without the lock.
func activateBy(handle fwk.Handle) func(map[string]*corev1.Pod) {
	return func(pods map[string]*corev1.Pod) { handle.Activate(klog.Background(), pods) }
}

// EventsToRegister implements fwk.EnqueueExtensions. A node's report frees GPUs, and wake handles that. Here are only
// events that the cluster state does not see.
func (*Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable},
			QueueingHintFn: offersGPUs},
	}, nil
}

// offersGPUs is a hint: a node without GPUs helps no pod that waits for one.
func offersGPUs(_ klog.Logger, _ *corev1.Pod, _, now any) (fwk.QueueingHint, error) {
	if n, ok := of[*corev1.Node](now); ok && len(machineOf(n).Allocatable) == 0 {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// SignPod implements fwk.SignPlugin: pods that request GPUs are never handled alike, since each changes what is free.
func (*Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if asks(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "requests a GPU")
	}
	return nil, nil
}
