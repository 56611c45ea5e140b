// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"math"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/dynamic-resource-allocation/cel"
	names "k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	"github.com/kerf-gpu/kerf/dra/resourceclaim"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

const (
	// claimsKey is where a scheduling cycle keeps what PreScore found for a pod with claims.
	claimsKey fwk.StateKey = Name + "/claims"
	// noOpinion is the score of a node of which Kerf knows nothing. It becomes 0 points.
	noOpinion = int64(math.MinInt64)
	// allocateTimeout bounds the allocation for one node. A node that takes longer gets no points.
	allocateTimeout = time.Second
	// gatherTries is how often the allocated claims are read while they change at the same moment.
	gatherTries = 100
)

// claimScorer scores nodes for pods with ResourceClaims of Kerf. The plugin DynamicResources of kube-scheduler decides
// where such a pod fits, and which devices it gets. The allocator here is the same, with the same input.
type claimScorer struct {
	core     *core
	handle   fwk.Handle
	features structured.Features
	cel      *cel.Cache
	// placed has the pods learned that were placed before this scheduler started.
	placed sync.Once
}

func newClaimScorer(c *core, handle fwk.Handle) *claimScorer {
	f := dynamicresources.AllocatorFeatures(feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	return &claimScorer{core: c, handle: handle, features: f, cel: cel.NewCache(10, cel.Features{
		EnableConsumableCapacity: f.ConsumableCapacity, EnableListTypeAttributes: f.ListTypeAttributes})}
}

// claimCycle is what a scheduling cycle knows of a pod with claims.
type claimCycle struct {
	// claims are those to allocate, and allocator is the one for them.
	claims    []*resourceapi.ResourceClaim
	allocator structured.Allocator
	// allocated are the devices of Kerf that claims have, by node.
	allocated map[string][]dra.Result
	cpu       cluster.Milli
}

// Clone implements fwk.StateData. Nothing of it changes.
func (c *claimCycle) Clone() fwk.StateData { return c }

// claimCycleOf is nil for a pod without claims to score.
func claimCycleOf(state fwk.CycleState) *claimCycle {
	data, err := state.Read(claimsKey)
	if err != nil {
		return nil
	}
	c, _ := data.(*claimCycle)
	return c
}

// claimsOf are the claims of a pod; none if one of them is not there, or not the pod's.
func (s *claimScorer) claimsOf(manager fwk.SharedDRAManager, pod *corev1.Pod) []*resourceapi.ResourceClaim {
	var out []*resourceapi.ResourceClaim
	for i := range pod.Spec.ResourceClaims {
		name, owned, err := names.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil
		}
		if name == nil {
			continue
		}
		claim, err := manager.ResourceClaims().Get(pod.Namespace, *name)
		if err != nil || owned && names.IsForPod(pod, claim, true) != nil {
			return nil
		}
		out = append(out, claim)
	}
	return out
}

// learn reports a pod with claims of Kerf that arrived.
func (s *claimScorer) learn(pod *corev1.Pod) {
	if len(pod.Spec.ResourceClaims) == 0 {
		return
	}
	if manager := s.handle.SharedDRAManager(); manager != nil {
		s.placed.Do(func() { s.learnPlaced(manager) })
		s.learnOne(manager, pod)
	}
}

func (s *claimScorer) learnOne(manager fwk.SharedDRAManager, pod *corev1.Pod) {
	var wanted []dra.Wanted
	for _, claim := range s.claimsOf(manager, pod) {
		wanted = append(wanted, resourceclaim.Wanted(claim)...)
	}
	if len(wanted) == 0 {
		return
	}
	s.core.mu.Lock()
	defer s.core.mu.Unlock()
	s.core.state.LearnClaims(string(pod.UID), wanted, cpuOf(pod))
}

// learnPlaced reports the pods that have allocated claims.
func (s *claimScorer) learnPlaced(manager fwk.SharedDRAManager) {
	all, err := manager.ResourceClaims().List()
	if err != nil {
		klog.Background().Error(err, "failed to list ResourceClaims, pods that run are not learned")
		return
	}
	pods := s.handle.SharedInformerFactory().Core().V1().Pods().Lister()
	for _, claim := range all {
		for _, user := range claim.Status.ReservedFor {
			if user.APIGroup != "" || user.Resource != "pods" {
				continue
			}
			if pod, err := pods.Pods(claim.Namespace).Get(user.Name); err == nil && pod.UID == user.UID && !asks(pod) {
				s.learnOne(manager, pod)
			}
		}
	}
}

// begin prepares the scores of a pod's nodes; nil if no claim needs devices of Kerf.
func (s *claimScorer) begin(ctx context.Context, pod *corev1.Pod) *claimCycle {
	if len(pod.Spec.ResourceClaims) == 0 || !s.core.listed() {
		return nil
	}
	manager := s.handle.SharedDRAManager()
	if manager == nil {
		return nil
	}
	c, ofKerf := &claimCycle{cpu: cpuOf(pod)}, false
	for _, claim := range s.claimsOf(manager, pod) {
		if claim.Status.Allocation == nil && manager.ResourceClaims().GetPendingAllocation(claim.UID) == nil {
			c.claims = append(c.claims, claim)
			ofKerf = ofKerf || mayBeKerf(claim, manager.DeviceClasses())
		}
	}
	if !ofKerf {
		return nil
	}
	if err := c.prepare(ctx, manager, s.features, s.cel); err != nil {
		klog.FromContext(ctx).Error(err, "failed to read allocated devices, nodes get no score", "pod", klog.KObj(pod))
		return nil
	}
	return c
}

// mayBeKerf reports whether a request of the claim can get devices of Kerf. Device classes of others that select them
// name the driver.
func mayBeKerf(claim *resourceapi.ResourceClaim, classes fwk.DeviceClassLister) bool {
	selects := func(selectors []resourceapi.DeviceSelector) bool {
		for _, s := range selectors {
			if s.CEL != nil && strings.Contains(s.CEL.Expression, dra.Driver) {
				return true
			}
		}
		return false
	}
	ofKerf := func(class string, selectors []resourceapi.DeviceSelector) bool {
		if strings.HasSuffix(class, "."+sharing.Domain) || selects(selectors) {
			return true
		}
		c, err := classes.Get(class)
		return err == nil && c != nil && selects(c.Spec.Selectors)
	}
	for _, r := range claim.Spec.Devices.Requests {
		if r.Exactly != nil && ofKerf(r.Exactly.DeviceClassName, r.Exactly.Selectors) {
			return true
		}
		for _, sub := range r.FirstAvailable {
			if ofKerf(sub.DeviceClassName, sub.Selectors) {
				return true
			}
		}
	}
	return false
}

// score is that of a node which passed the filters, or noOpinion.
func (s *claimScorer) score(ctx context.Context, c *claimCycle, node fwk.NodeInfo) int64 {
	devices, rank := c.devices(ctx, node.Node())
	s.core.mu.Lock()
	defer s.core.mu.Unlock()
	score, ok := s.core.state.ScoreClaims(scheduler.ClaimPlacement{Node: node.Node().Name, CPU: c.cpu,
		Free: freeCPU(node), Devices: devices, Rank: rank, Allocated: c.allocated[node.Node().Name]}, s.core.now())
	if !ok {
		return noOpinion
	}
	return score
}
