// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// A node without an opinion of Kerf gets no points, and none takes any from the others.
func TestNodesWithoutOpinion(t *testing.T) {
	for name, tc := range map[string]struct{ scores, want []int64 }{
		"no node":             {nil, nil},
		"all":                 {[]int64{noOpinion, noOpinion}, []int64{0, 0}},
		"one of three":        {[]int64{-30, noOpinion, -10}, []int64{0, 0, 100}},
		"one of four":         {[]int64{-10, -20, noOpinion, -30}, []int64{100, 25, 0, 0}},
		"all but one":         {[]int64{noOpinion, -1 << 60}, []int64{0, 100}},
		"one of equal others": {[]int64{5, 5, noOpinion}, []int64{100, 50, 0}},
	} {
		var list fwk.NodeScoreList
		for i, s := range tc.scores {
			list = append(list, fwk.NodeScore{Name: fmt.Sprint(i), Score: s})
		}
		if status := (*Plugin)(nil).NormalizeScore(t.Context(), nil, nil, list); !status.IsSuccess() {
			t.Errorf("%s: %v", name, status)
		}
		var got []int64
		for _, s := range list {
			got = append(got, s.Score)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// draState is the scheduler's view of DRA objects, as far as the plugin asks it.
type draState struct {
	fwk.SharedDRAManager
	fwk.ResourceClaimTracker
	claims []*resourceapi.ResourceClaim
}

func (d *draState) ResourceClaims() fwk.ResourceClaimTracker                     { return d }
func (d *draState) List() ([]*resourceapi.ResourceClaim, error)                  { return d.claims, nil }
func (d *draState) GetPendingAllocation(types.UID) *resourceapi.AllocationResult { return nil }

func (d *draState) Get(_, name string) (*resourceapi.ResourceClaim, error) {
	for _, c := range d.claims {
		if c.Name == name {
			return c, nil
		}
	}
	return nil, errors.New("no such claim")
}

// draHandle is a handle with DRA objects and pods.
type draHandle struct {
	*handle
	dra    fwk.SharedDRAManager
	shared informers.SharedInformerFactory
}

func (h *draHandle) SharedDRAManager() fwk.SharedDRAManager                 { return h.dra }
func (h *draHandle) SharedInformerFactory() informers.SharedInformerFactory { return h.shared }

// claimPod is a pod with the claim of its name.
func claimPod(name string) (*corev1.Pod, *resourceapi.ResourceClaim) {
	pod := podOf(name, 0)
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
	return pod, &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: pod.Namespace},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: dra.ClassShare, Count: 1,
				Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
					dra.CapacityMemory: resource.MustParse("50Gi")}}}}}}},
		Status: resourceapi.ResourceClaimStatus{ReservedFor: []resourceapi.ResourceClaimConsumerReference{
			{Resource: "pods", Name: name, UID: pod.UID}}}}
}

// A scheduler that starts learns of the pods that have claims already, and then of each pod that arrives.
func TestLearnsOfPodsWithClaims(t *testing.T) {
	score := func(placed, arrived int) int64 {
		w, d := newWorld(t, 1), &draState{}
		w.core.state.Fitting(must(t, podOf("first", 1)), w.clock) // the policy sees the nodes before any pod
		h := &draHandle{handle: w.handle, dra: d, shared: informers.NewSharedInformerFactory(fake.NewClientset(), 0)}
		w.Plugin.claims = newClaimScorer(w.core, h)
		for i := range placed {
			pod, claim := claimPod(fmt.Sprint("placed-", i))
			d.claims = append(d.claims, claim)
			if err := h.shared.Core().V1().Pods().Informer().GetStore().Add(pod); err != nil {
				t.Fatal(err)
			}
		}
		for i := range arrived {
			pod, claim := claimPod(fmt.Sprint("pod-", i))
			claim.Status.ReservedFor = nil
			d.claims = append(d.claims, claim)
			for range 2 { // it is tried twice
				if _, status := w.PreFilter(t.Context(), newState(), pod, nil); !status.IsSkip() {
					t.Fatal(status)
				}
			}
		}
		return w.core.state.Score(must(t, podOf("share", 30)), "n0", 64000, w.clock)
	}
	none, few, both := score(0, 1), score(0, 20), score(60, 20)
	if many := score(0, 80); none != few || both == none || many != both {
		t.Errorf("of 1 pod %d, of 20 pods %d, of 80 pods %d, of 60 with claims and 20 more %d", none, few, many, both)
	}
}

func must(t *testing.T, p *corev1.Pod) scheduler.PodRequest {
	t.Helper()
	w, ok, err := wantOf(p)
	if !ok || err != nil {
		t.Fatal(err)
	}
	return w
}

// The rank of alternatives counts those before, of all requests.
func TestRankOf(t *testing.T) {
	request := func(name string) resourceapi.DeviceRequest {
		return resourceapi.DeviceRequest{Name: name, FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "a"},
			{Name: "b"}, {Name: "c"}}}
	}
	claim := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{request("x"), request("y"), {Name: "z"}}}}}
	for want, got := range map[int][]string{0: {"x/a", "y/a", "z"}, 1: {"x/b", "x/b", "y/a"}, 3: {"z", "x/b", "y/c"}} {
		var a resourceapi.AllocationResult
		for _, r := range got {
			a.Devices.Results = append(a.Devices.Results, resourceapi.DeviceRequestAllocationResult{Request: r})
		}
		if rank := rankOf(claim, &a); rank != want {
			t.Errorf("%v: rank %d, want %d", got, rank, want)
		}
	}
}

// Device classes of others that select Kerf's devices are scored too.
func TestMayBeKerf(t *testing.T) {
	selector := func(text string) []resourceapi.DeviceSelector {
		return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: text}}}
	}
	classes := classList{"team": selector("device.driver == 'gpu." + sharing.Domain + "'"),
		"nic": selector("device.driver == 'nic.example'")}
	exactly := func(class string, s []resourceapi.DeviceSelector) resourceapi.DeviceRequest {
		return resourceapi.DeviceRequest{Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class, Selectors: s}}
	}
	for name, tc := range map[string]struct {
		request resourceapi.DeviceRequest
		want    bool
	}{
		"a class of Kerf":      {exactly(dra.ClassShare, nil), true},
		"another class for it": {exactly("team", nil), true},
		"another driver":       {exactly("nic", nil), false},
		"a selector for it":    {exactly("any", selector("device.attributes['"+dra.Driver+"'].migCapable")), true},
		"no class":             {exactly("missing", nil), false},
		"an alternative": {resourceapi.DeviceRequest{FirstAvailable: []resourceapi.DeviceSubRequest{
			{DeviceClassName: "nic"}, {DeviceClassName: dra.ClassMIG}}}, true},
	} {
		claim := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{tc.request}}}}
		if got := mayBeKerf(claim, classes); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// classList has the selectors of device classes.
type classList map[string][]resourceapi.DeviceSelector

func (c classList) Get(name string) (*resourceapi.DeviceClass, error) {
	if s, ok := c[name]; ok {
		return &resourceapi.DeviceClass{Spec: resourceapi.DeviceClassSpec{Selectors: s}}, nil
	}
	return nil, errors.New("no such class")
}

func (classList) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }
