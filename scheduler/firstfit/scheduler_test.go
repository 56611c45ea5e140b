// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package firstfit_test

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/kerf-gpu/kerf/lab/policy/dra"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

const namespace = "team"

// kube is kube-scheduler with parallelism 1 on a fake API server. The agents publish the order of their devices as soon
// as a pod is bound.
type kube struct {
	*testing.T
	client    *fake.Clientset
	informers informers.SharedInformerFactory
	versions  atomic.Int64
	free      map[string][]cluster.Milli
	published map[string][]*resourceapi.ResourceSlice
	// plans are the annotations of bindings, by pod.
	plans sync.Map
}

// outcome is where a pod is placed. The zero value is a pod that does not fit.
type outcome struct {
	node string
	gpus []int
}

func startScheduler(t *testing.T, nodes []cluster.Node) *kube {
	t.Helper()
	return newKube(t, nodes).start()
}

// newKube is a fake API server with the nodes.
func newKube(t *testing.T, nodes []cluster.Node) *kube {
	t.Helper()
	// Without rules of taints, the scheduler reads ResourceSlices from their informer, for which publish waits.
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRADeviceTaintRules, false)
	k := &kube{T: t, client: fake.NewClientset(), free: map[string][]cluster.Milli{},
		published: map[string][]*resourceapi.ResourceSlice{}}
	k.client.PrependReactor("*", "resourceclaims", k.version)
	k.client.PrependReactor("create", "pods", k.bind)
	for _, n := range nodes {
		k.add(n)
	}
	for _, class := range dra.Classes() {
		must(k.client.ResourceV1().DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{}))(t)
	}
	return k
}

// start starts the scheduler.
func (k *kube) start(more ...scheduler.Option) *kube {
	t := k.T
	t.Helper()
	k.informers = scheduler.NewInformerFactory(k.client, 0, nil)
	recorder := profile.NewRecorderFactory(events.NewBroadcaster(&events.EventSinkImpl{Interface: k.client.EventsV1()}))
	s, err := scheduler.New(t.Context(), k.client, k.informers, nil, recorder,
		append(more, scheduler.WithParallelism(1))...)
	if err != nil {
		t.Fatal(err)
	}
	k.informers.Start(t.Context().Done())
	k.informers.WaitForCacheSync(t.Context().Done())
	if err := s.WaitForHandlersSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(t.Context())
	}()
	t.Cleanup(func() { <-ended })
	return k
}

// must takes the answer of a call that cannot fail.
func must[T any](got T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
}

// version gives ResourceClaims the versions of an API server, which the scheduler compares.
func (k *kube) version(action core.Action) (bool, runtime.Object, error) {
	if write, ok := action.(interface{ GetObject() runtime.Object }); ok {
		if claim, ok := write.GetObject().(*resourceapi.ResourceClaim); ok {
			claim.ResourceVersion = strconv.FormatInt(k.versions.Add(1), 10)
		}
	}
	return false, nil, nil
}

// bind carries out bindings.
func (k *kube) bind(action core.Action) (bool, runtime.Object, error) {
	create, ok := action.(core.CreateAction)
	if !ok || action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	b, _ := create.GetObject().(*corev1.Binding)
	object, err := k.client.Tracker().Get(action.GetResource(), namespace, b.Name)
	if err != nil {
		return true, nil, err
	}
	pod, _ := object.DeepCopyObject().(*corev1.Pod)
	pod.Spec.NodeName = b.Target.Name
	k.plans.Store(b.Name, b.Annotations)
	return true, b, k.client.Tracker().Update(action.GetResource(), pod, namespace)
}

func amounts(cpu cluster.Milli, memory int64) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(cpu), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI)}
}

func (k *kube) add(n cluster.Node) {
	has := amounts(n.CPU, int64(n.Memory))
	has[corev1.ResourcePods] = *resource.NewQuantity(110, resource.DecimalSI)
	must(k.client.CoreV1().Nodes().Create(k.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name},
		Status: corev1.NodeStatus{Capacity: has, Allocatable: has}}, metav1.CreateOptions{}))(k.T)
	k.free[n.Name], k.published[n.Name] = slices.Clone(n.GPUs), dra.Slices(n.Name, n.GPUs)
	for _, s := range k.published[n.Name] {
		must(k.client.ResourceV1().ResourceSlices().Create(k.Context(), s, metav1.CreateOptions{}))(k.T)
	}
}

// wait waits for what happens in any case.
func (k *kube) wait(done func() bool) {
	for !done() {
		if k.Context().Err() != nil {
			k.Fatal("the test was ended")
		}
		time.Sleep(time.Millisecond)
	}
}

// schedule creates a pod with its claim, and waits until it is bound or rejected. A rejected one is deleted.
func (k *kube) schedule(p simulate.Pod) outcome {
	k.Helper()
	return k.scheduleAs(p, dra.Claim(p.Shape))
}

// scheduleAs is schedule with another claim.
func (k *kube) scheduleAs(p simulate.Pod, devices resourceapi.DeviceClaim) outcome {
	k.Helper()
	if p.GPUs > 0 {
		k.claim(p.Name, devices)
	}
	pod, rejected := k.decide(claimPod(p))
	if rejected {
		k.remove(p)
		return outcome{}
	}
	out := outcome{node: pod.Spec.NodeName}
	if p.GPUs > 0 {
		out.gpus = k.allocated(p.Name)
		for _, g := range out.gpus {
			k.free[out.node][g] -= p.Share
		}
		k.publish(out.node)
	}
	return out
}

// claimPod is a pod that references the claim of its name, if it requests GPUs.
func claimPod(p simulate.Pod) *corev1.Pod {
	asks := corev1.ResourceRequirements{Requests: amounts(p.CPU, int64(p.Memory))}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: namespace, UID: types.UID("uid-" + p.Name)},
		Spec: corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName,
			Containers: []corev1.Container{{Name: "main", Resources: asks}}}}
	if p.GPUs > 0 {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &p.Name}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	}
	return pod
}

// decide creates a pod, and waits until it is bound or rejected.
func (k *kube) decide(pod *corev1.Pod) (_ *corev1.Pod, rejected bool) {
	k.Helper()
	must(k.client.CoreV1().Pods(namespace).Create(k.Context(), pod, metav1.CreateOptions{}))(k.T)
	k.wait(func() bool {
		pod = must(k.client.CoreV1().Pods(namespace).Get(k.Context(), pod.Name, metav1.GetOptions{}))(k.T)
		rejected = slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
		})
		return pod.Spec.NodeName != "" || rejected
	})
	return pod, rejected
}

// claim creates the claim of a pod, and waits until the scheduler knows it.
func (k *kube) claim(name string, devices resourceapi.DeviceClaim) {
	must(k.client.ResourceV1().ResourceClaims(namespace).Create(k.Context(), &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID("claim-" + name)},
		Spec:       resourceapi.ResourceClaimSpec{Devices: devices}}, metav1.CreateOptions{}))(k.T)
	k.wait(func() bool {
		_, err := k.informers.Resource().V1().ResourceClaims().Lister().ResourceClaims(namespace).Get(name)
		return err == nil
	})
}

// remove deletes a pod, and waits until the scheduler knows it.
func (k *kube) remove(p simulate.Pod) {
	if err := k.client.CoreV1().Pods(namespace).Delete(k.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		k.Fatal(err)
	}
	k.wait(func() bool {
		_, err := k.informers.Core().V1().Pods().Lister().Pods(namespace).Get(p.Name)
		return apierrors.IsNotFound(err)
	})
}

// allocated are the GPUs of a claim.
func (k *kube) allocated(name string) (gpus []int) {
	claim := must(k.client.ResourceV1().ResourceClaims(namespace).Get(k.Context(), name, metav1.GetOptions{}))(k.T)
	for _, r := range claim.Status.Allocation.Devices.Results {
		uuid := strings.TrimSuffix(r.Device, "-share")
		gpus = append(gpus, must(strconv.Atoi(uuid[len(uuid)-12:]))(k.T))
	}
	slices.Sort(gpus)
	return gpus
}

// publish writes the ResourceSlices of a node if they have changed, and waits until the scheduler knows them.
func (k *kube) publish(node string) {
	now, before := dra.Slices(node, k.free[node]), k.published[node]
	same := true
	for i, s := range now {
		s.Spec.Pool.Generation = before[i].Spec.Pool.Generation
		same = same && reflect.DeepEqual(s.Spec, before[i].Spec)
	}
	if same {
		return
	}
	k.published[node] = now
	for _, s := range now {
		s.Spec.Pool.Generation++
		must(k.client.ResourceV1().ResourceSlices().Update(k.Context(), s, metav1.UpdateOptions{}))(k.T)
		k.wait(func() bool {
			got, err := k.informers.Resource().V1().ResourceSlices().Lister().Get(s.Name)
			return err == nil && got.Spec.Pool.Generation == s.Spec.Pool.Generation
		})
	}
}
