// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package assign is the controller of ResourceClaims that need MIG instances before their pods are bound. It
// writes the allocations of each node to the spec of the node's GPUNode. So no agent reads all claims of the cluster.
//
// Promised: an allocation is in the spec while it is in the claim, and no longer. It follows only from the
// claims, so that the controller may stop at each step. It writes no other field, and one controller writes at a time.
package assign

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/dra/resourceclaim"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

const (
	// byNode is the index of claims by the node of their allocation.
	byNode = "node"
	// callTime bounds one write.
	callTime = 10 * time.Second
	// firstRetry is the pause after a failed write. It doubles up to lastRetry.
	firstRetry = 200 * time.Millisecond
	lastRetry  = time.Minute
	// manager owns the assigned claims in each GPUNode.
	manager = "kerf-claim-controller"
)

// gpuNodes is the resource of GPUNodes.
func gpuNodes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: gpunode.Group, Version: gpunode.Version, Resource: gpunode.Resource}
}

// controller follows claims and GPUNodes.
type controller struct {
	log    *slog.Logger
	client dynamic.Interface
	claims cache.SharedIndexInformer
	nodes  cache.SharedIndexInformer
	// queue has the names of nodes. The spec of their GPUNode may differ from the claims.
	queue workqueue.TypedRateLimitingInterface[string]
}

// newController makes one that follows nothing yet.
func newController(log *slog.Logger, claims kubernetes.Interface, client dynamic.Interface) (*controller, error) {
	c := &controller{log: log, client: client, claims: claimInformer(claims),
		nodes: dynamicinformer.NewFilteredDynamicInformer(client, gpuNodes(), "", 0, nil, nil).Informer(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry))}
	for _, f := range []struct {
		informer cache.SharedIndexInformer
		slim     cache.TransformFunc
		nodeOf   func(object any) string
	}{{c.claims, slimClaim, nodeOfClaim}, {c.nodes, slimNode, nameOf}} {
		if err := f.informer.SetTransform(f.slim); err != nil {
			return nil, fmt.Errorf("follow claims and gpunodes: %w", err)
		}
		if _, err := f.informer.AddEventHandler(c.handler(f.nodeOf)); err != nil {
			return nil, fmt.Errorf("follow claims and gpunodes: %w", err)
		}
	}
	return c, nil
}

// handler queues the node of each object, before and after a change.
func (c *controller) handler(nodeOf func(any) string) cache.ResourceEventHandler {
	add := func(object any) {
		if gone, is := object.(cache.DeletedFinalStateUnknown); is {
			object = gone.Obj
		}
		if node := nodeOf(object); node != "" {
			c.queue.Add(node)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: add, DeleteFunc: add,
		UpdateFunc: func(before, after any) { add(before); add(after) }}
}

// run writes assignments until ctx ends.
func (c *controller) run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { c.claims.RunWithContext(ctx) })
	all.Go(func() { c.nodes.RunWithContext(ctx) })
	all.Go(func() { <-ctx.Done(); c.queue.ShutDown() })
	if !cache.WaitForCacheSync(ctx.Done(), c.claims.HasSynced, c.nodes.HasSynced) {
		return nil
	}
	c.log.Info("assigning claims to nodes")
	for {
		node, over := c.queue.Get()
		if over {
			return nil
		}
		if err := c.reconcile(ctx, node); err != nil && ctx.Err() == nil {
			c.log.Warn("failed to assign claims, will retry", "node", node, "error", err)
			c.queue.AddRateLimited(node)
		} else {
			c.queue.Forget(node)
		}
		c.queue.Done(node)
	}
}

// reconcile brings the spec of a GPUNode in line with the claims. A node without a GPUNode is queued again once it
// has one.
func (c *controller) reconcile(ctx context.Context, node string) error {
	object, there, err := c.nodes.GetStore().GetByKey(node)
	if err != nil || !there {
		return err //nolint:wrapcheck // the key is valid
	}
	found, err := c.claims.GetIndexer().ByIndex(byNode, node)
	if err != nil {
		return fmt.Errorf("list claims of node %s: %w", node, err)
	}
	var all []dra.Allocation
	for _, o := range found {
		if claim, is := o.(*resourceapi.ResourceClaim); is {
			all = append(all, resourceclaim.AllocationOf(claim))
		}
	}
	want := assigned(dra.Assign(node, all))
	has, readable := claimsIn(object)
	if readable && same(has, want) {
		return nil
	}
	patch, err := patchOf(want)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	_, err = c.client.Resource(gpuNodes()).Patch(ctx, node, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: manager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch gpunode %s: %w", node, err)
	}
	return nil
}

// claimsIn are the assigned claims of a GPUNode. It is false for a spec that cannot be read.
func claimsIn(object any) ([]gpunode.AssignedClaim, bool) {
	u, is := object.(*unstructured.Unstructured)
	if !is {
		return nil, false
	}
	var spec struct {
		Spec gpunode.Spec `json:"spec"`
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &spec)
	return spec.Spec.AssignedClaims, err == nil
}

// claimInformer follows the claims of all namespaces.
func claimInformer(client kubernetes.Interface) cache.SharedIndexInformer {
	all := client.ResourceV1().ResourceClaims(metav1.NamespaceAll)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return all.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return all.Watch(ctx, o)
		},
	}
	index := func(object any) ([]string, error) {
		if node := nodeOfClaim(object); node != "" {
			return []string{node}, nil
		}
		return nil, nil
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, client),
		&resourceapi.ResourceClaim{}, 0, cache.Indexers{byNode: index})
}

// nodeOfClaim is the node of a claim with an allocation; empty without one.
func nodeOfClaim(object any) string {
	if claim, is := object.(*resourceapi.ResourceClaim); is {
		return resourceclaim.AllocationOf(claim).Node
	}
	return ""
}

func nameOf(object any) string {
	if u, is := object.(*unstructured.Unstructured); is {
		return u.GetName()
	}
	return ""
}

// slimClaim keeps what the controller reads of a claim.
func slimClaim(object any) (any, error) {
	if c, is := object.(*resourceapi.ResourceClaim); is {
		c.ManagedFields, c.Labels, c.Annotations = nil, nil, nil
		c.Spec, c.Status.Devices, c.Status.ReservedFor = resourceapi.ResourceClaimSpec{}, nil, nil
	}
	return object, nil
}

// slimNode keeps what the controller reads of a GPUNode: its status may be large.
func slimNode(object any) (any, error) {
	u, is := object.(*unstructured.Unstructured)
	if !is {
		return object, nil
	}
	u.SetManagedFields(nil)
	delete(u.Object, "status")
	return u, nil
}
