// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package firstfit_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/lab/policy/dra"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// twoNodes have a GPU each. kube-scheduler prefers large, which has more CPU free.
func twoNodes() []cluster.Node {
	return []cluster.Node{
		{Name: "large", CPU: 96_000, Memory: sharing.TiB, GPUs: []cluster.Milli{cluster.WholeGPU}},
		{Name: "small", CPU: 32_000, Memory: sharing.TiB, GPUs: []cluster.Milli{cluster.WholeGPU}},
	}
}

// inFlight has node small with a claim of 700 GiB that is allocated, and that its agent has not prepared.
func (k *kube) inFlight() {
	k.Helper()
	taken := ""
	for _, slice := range k.published["small"] {
		for _, d := range slice.Spec.Devices {
			if strings.HasSuffix(d.Name, "-share") {
				taken = d.Name
			}
		}
	}
	memory := resource.MustParse("700Gi")
	must(k.client.ResourceV1().ResourceClaims(namespace).Create(k.Context(), &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: namespace, UID: "claim-other"},
		Spec:       resourceapi.ResourceClaimSpec{Devices: dra.Claim(cluster.Shape{GPUs: 1, Share: 700})},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
				Request: "gpu", Driver: "gpu.kerf.dev", Pool: "small", Device: taken, ShareID: new(types.UID("share")),
				ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{"memory": memory}}}}}},
	}, metav1.CreateOptions{}))(k.T)
	k.wait(func() bool {
		c, err := k.informers.Resource().V1().ResourceClaims().Lister().ResourceClaims(namespace).Get("other")
		return err == nil && c.Status.Allocation != nil
	})
}

// tenGiB is a pod with a claim of 10 GiB.
func tenGiB() simulate.Pod {
	return simulate.Pod{Name: "pod", Request: cluster.Request{Memory: sharing.GiB,
		Shape: cluster.Shape{CPU: 1000, GPUs: 1, Share: 10}}}
}

// alternatives is a claim for the first class that can be had, and else for the second.
func alternatives(first, second string) resourceapi.DeviceClaim {
	sub := func(name, class string) resourceapi.DeviceSubRequest {
		out := resourceapi.DeviceSubRequest{Name: name, DeviceClassName: class, Count: 1,
			AllocationMode: resourceapi.DeviceAllocationModeExactCount}
		if class == "share.kerf.dev" {
			out.Capacity = dra.Claim(tenGiB().Shape).Requests[0].Exactly.Capacity
		}
		return out
	}
	return resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpu",
		FirstAvailable: []resourceapi.DeviceSubRequest{sub("first", first), sub("second", second)}}}}
}

// all is a claim for all devices of a class.
func all(class string) resourceapi.DeviceClaim {
	return resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpu",
		Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class,
			AllocationMode: resourceapi.DeviceAllocationModeAll}}}}
}

// class creates a device class of another driver.
func (k *kube) class(name, driver string) {
	must(k.client.ResourceV1().DeviceClasses().Create(k.Context(), &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
				Expression: "device.driver == '" + driver + "'"}}}}}, metav1.CreateOptions{}))(k.T)
	k.wait(func() bool {
		_, err := k.informers.Resource().V1().DeviceClasses().Lister().Get(name)
		return err == nil
	})
}

// nic publishes a device of another driver on each node, and its class. The class "none" has no device.
func (k *kube) nic() {
	k.Helper()
	const driver = "nic.example"
	for node := range k.free {
		must(k.client.ResourceV1().ResourceSlices().Create(k.Context(), &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: node + "-nic"},
			Spec: resourceapi.ResourceSliceSpec{Driver: driver, NodeName: &node,
				Pool:    resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
				Devices: []resourceapi.Device{{Name: "nic-0"}}}}, metav1.CreateOptions{}))(k.T)
	}
	k.class("nic", driver)
	k.class("none", "none.example")
	k.wait(func() bool {
		_, small := k.informers.Resource().V1().ResourceSlices().Lister().Get("small-nic")
		_, large := k.informers.Resource().V1().ResourceSlices().Lister().Get("large-nic")
		return small == nil && large == nil
	})
}

// TestClaims: a pod goes to the node where its claim fits most tightly, which is small after another claim is allocated
// there. Without an opinion of Kerf, large is the node that kube-scheduler takes.
func TestClaims(t *testing.T) {
	share := dra.Claim(tenGiB().Shape)
	selected := dra.Claim(tenGiB().Shape)
	selected.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: "device.attributes['gpu.kerf.dev'].migCapable == false"}}}
	both := dra.Claim(tenGiB().Shape)
	both.Requests = append(both.Requests, resourceapi.DeviceRequest{Name: "nic",
		Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "nic", Count: 1,
			AllocationMode: resourceapi.DeviceAllocationModeExactCount}})
	for name, tc := range map[string]struct {
		claim resourceapi.DeviceClaim
		// edit changes what the agent of node small reports.
		edit  func(*gpunode.Status)
		stale bool
		want  string
	}{
		"a claim in flight counts":         {claim: share, want: "small"},
		"a selector":                       {claim: selected, want: "small"},
		"a device of another driver too":   {claim: both, want: "small"},
		"a device of another driver alone": {claim: all("nic"), want: "large"},
		"a share, or else a whole": {want: "small",
			claim: alternatives("share.kerf.dev", "whole.kerf.dev")},
		"a whole, or else a share": {want: "large",
			claim: alternatives("whole.kerf.dev", "share.kerf.dev")},
		"a device that no node has, or else":   {claim: alternatives("none", "share.kerf.dev"), want: "small"},
		"all whole GPUs":                       {claim: all("whole.kerf.dev"), want: "large"},
		"the agent was not heard from in time": {claim: share, stale: true, want: "large"},
		"the agent is not ready": {claim: share, want: "large",
			edit: func(s *gpunode.Status) { s.Conditions[0].Status = gpunode.False }},
		"a process has the GPU": {claim: share, want: "large", edit: func(s *gpunode.Status) {
			s.GPUs[0].FreeBytes = int64(5 * sharing.GiB)
			s.Grants = []gpunode.Grant{{ID: "1", Shares: []gpunode.Share{{GPU: s.GPUs[0].UUID,
				MemoryBytes: int64(995 * sharing.GiB)}}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			reports, heartbeats := healthy(twoNodes())
			if tc.edit != nil {
				small := reports["small"]
				tc.edit(&small)
				reports["small"] = small
			}
			if tc.stale {
				heartbeats["small"] = 40 * time.Second // the heartbeat is a minute old
			}
			k := startKerf(t, twoNodes(), reports, heartbeats)
			k.nic()
			k.inFlight()
			k.claim("pod", tc.claim)
			pod, rejected := k.decide(claimPod(tenGiB()))
			if rejected || pod.Spec.NodeName != tc.want {
				t.Errorf("it is on node %q, rejected %t; want %q", pod.Spec.NodeName, rejected, tc.want)
			}
		})
	}
	t.Run("kube-scheduler", func(t *testing.T) {
		k := startScheduler(t, twoNodes())
		k.inFlight()
		if got := k.schedule(tenGiB()); got.node != "large" {
			t.Errorf("kube-scheduler takes %q: the test shows nothing", got.node)
		}
	})
}

// TestLimitsAndClaims: a pod with limits and a claim gets a GPU of each front end. Limits never get a GPU that pods get
// by ResourceClaim.
func TestLimitsAndClaims(t *testing.T) {
	nodes := twoNodes()
	reports, heartbeats := healthy(nodes)
	small := reports["small"]
	by := small.GPUs[0]
	by.UUID, by.Index, by.Mode = "GPU-00000000-0000-4000-9000-000000000001", 1, ""
	small.GPUs = append(small.GPUs, by)
	reports["small"] = small
	k := startKerf(t, nodes, reports, heartbeats)
	for _, n := range nodes { // large offers units too, as kubelet does for a while after a change of the front end
		node := must(k.client.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{}))(t)
		node.Status.Allocatable[sharing.ResourceMemory] = resource.MustParse("1000")
		node.Status.Capacity[sharing.ResourceMemory] = resource.MustParse("1000")
		must(k.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}))(t)
		k.wait(func() bool {
			got, err := k.informers.Core().V1().Nodes().Lister().Get(n.Name)
			return err == nil && len(got.Status.Allocatable) == len(node.Status.Allocatable)
		})
	}
	limits := corev1.ResourceList{sharing.ResourceMemory: resource.MustParse("20")}
	p := claimPod(tenGiB())
	k.claim("pod", dra.Claim(tenGiB().Shape))
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "limits",
		Resources: corev1.ResourceRequirements{Requests: limits, Limits: limits}})
	pod, rejected := k.decide(p)
	if rejected || pod.Spec.NodeName != "small" {
		t.Fatalf("it is on node %q, rejected %t", pod.Spec.NodeName, rejected)
	}
	if gpus := k.allocated("pod"); !slices.Equal(gpus, []int{0}) {
		t.Errorf("the claim has GPUs %v", gpus)
	}
	plan, _ := k.plans.Load("pod")
	if got := plan.(map[string]string)[sharing.PlacementAnnotation("limits")]; got != by.UUID {
		t.Errorf("the plan is %v", plan)
	}
}
