// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package firstfit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	plugin "github.com/kerf-gpu/kerf/dra"
	"github.com/kerf-gpu/kerf/dra/resourceclaim"
	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

const bindingNode = "node-b"

// instancesOf are the ResourceSlices of a node with two GPUs, each of which gives one MIG instance before the pod of a
// claim is bound. The tainted GPU cannot.
func instancesOf(generation int64, tainted string) []*resourceapi.ResourceSlice {
	var gpus []dra.GPU
	for _, id := range []string{"a", "b"} {
		g := dra.GPU{GPU: sharing.GPU{UUID: sharing.GPUID("GPU-" + id), Memory: 80 * sharing.GiB,
			Health: sharing.HealthOK, MIGCapable: true}}
		g.Partition = dra.MIG{BeforeBinding: true, Unavailable: id == tainted, Geometry: []mig.Profile{{ID: 0,
			Name: "7g.80gb", Compute: 7, Memory: 80 * sharing.GiB, MaxInstances: 1, Size: 8, Starts: []int{0}}}}
		gpus = append(gpus, g)
	}
	pool := plugin.Resources(bindingNode, dra.Instances(dra.Node{}, gpus)).Pools[bindingNode]
	var out []*resourceapi.ResourceSlice
	for i, s := range pool.Slices {
		out = append(out, &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("slice-%d", i)},
			Spec: resourceapi.ResourceSliceSpec{Driver: dra.Driver, NodeName: new(bindingNode), Devices: s.Devices,
				SharedCounters: s.SharedCounters, Pool: resourceapi.ResourcePool{Name: bindingNode,
					Generation: generation, ResourceSliceCount: int64(len(pool.Slices))}}})
	}
	return out
}

// taint publishes the taint of a GPU, and waits until the scheduler knows it.
func (k *kube) taint(gpu string) {
	for _, s := range instancesOf(2, gpu) {
		must(k.client.ResourceV1().ResourceSlices().Update(k.Context(), s, metav1.UpdateOptions{}))(k.T)
		k.wait(func() bool {
			got, err := k.informers.Resource().V1().ResourceSlices().Lister().Get(s.Name)
			return err == nil && got.Spec.Pool.Generation == 2
		})
	}
}

// getClaim is a claim in the API server.
func (k *kube) getClaim(name string) *resourceapi.ResourceClaim {
	return must(k.client.ResourceV1().ResourceClaims(namespace).Get(k.Context(), name, metav1.GetOptions{}))(k.T)
}

// allocation waits until a claim is allocated on a GPU.
func (k *kube) allocation(name, gpu string) (a dra.Allocation) {
	k.wait(func() bool {
		a = resourceclaim.AllocationOf(k.getClaim(name))
		return len(a.Devices) == 1 && strings.HasPrefix(a.Devices[0], "gpu-"+gpu+"-mig-")
	})
	return a
}

// report writes the outcome of an allocation as the agent does. The fake API server gives the claim no new version by
// itself, without which the scheduler does not read it.
func (k *kube) report(a dra.Allocation, failure error) {
	b := plugin.Conditions{Client: k.client, Node: bindingNode, Now: time.Now}
	if err := b.Report(k.Context(), a, failure); err != nil {
		k.Fatal(err)
	}
	must(k.client.ResourceV1().ResourceClaims(namespace).UpdateStatus(k.Context(), k.getClaim(a.Name),
		metav1.UpdateOptions{}))(k.T)
}

func (k *kube) nodeOf(pod string) string {
	return must(k.client.CoreV1().Pods(namespace).Get(k.Context(), pod, metav1.GetOptions{}))(k.T).Spec.NodeName
}

// startPod creates a pod with a claim of a MIG instance.
func (k *kube) startPod(name string) {
	must(k.client.ResourceV1().ResourceClaims(namespace).Create(k.Context(), &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID("claim-" + name)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: dra.ClassMIG, Count: 1,
				AllocationMode: resourceapi.DeviceAllocationModeExactCount}}}}}}, metav1.CreateOptions{}))(k.T)
	must(k.client.CoreV1().Pods(namespace).Create(k.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName,
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}},
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
				Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}}}}, metav1.CreateOptions{}))(k.T)
}

// TestBindingConditions: kube-scheduler allocates a MIG instance, and binds the pod once the node says that the
// instance exists. After a failure it allocates one of another GPU, since the first has a taint.
func TestBindingConditions(t *testing.T) {
	k := startScheduler(t, nil)
	must(k.client.ResourceV1().DeviceClasses().Create(t.Context(), &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: dra.ClassMIG}, Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
				Expression: "device.attributes['gpu.kerf.dev'].type == 'mig'"}}}}}, metav1.CreateOptions{}))(t)
	for _, s := range instancesOf(1, "") {
		must(k.client.ResourceV1().ResourceSlices().Create(t.Context(), s, metav1.CreateOptions{}))(t)
	}
	has := amounts(64_000, 256<<30)
	has[corev1.ResourcePods] = resource.MustParse("110")
	must(k.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: bindingNode},
		Status: corev1.NodeStatus{Capacity: has, Allocatable: has}}, metav1.CreateOptions{}))(t)
	k.startPod("train")
	first := k.allocation("train", "a")
	// Another pod shows that the scheduler goes on while this one waits.
	if got := k.schedule(simulate.Pod{Name: "other"}); got.node != bindingNode || k.nodeOf("train") != "" {
		t.Fatalf("the other pod is on node %q, the first on %q", got.node, k.nodeOf("train"))
	}
	k.taint("a")
	k.report(first, errors.New("the driver is busy"))
	second := k.allocation("train", "b")
	if second.Key() == first.Key() || k.nodeOf("train") != "" {
		t.Fatalf("after the failure: %+v, node %q", second, k.nodeOf("train"))
	}
	k.report(second, nil)
	k.wait(func() bool { return k.nodeOf("train") == bindingNode })
	if got := k.allocation("train", "b"); got.Key() != second.Key() {
		t.Errorf("the pod is bound with %+v", got)
	}
}
