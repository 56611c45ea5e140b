// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestConvert(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	never := corev1.ContainerRestartPolicyNever
	with := func(name, res, amount string) corev1.Container {
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
			corev1.ResourceName(res): resource.MustParse(amount), corev1.ResourceCPU: resource.MustParse("2"),
			"example.com/kerf.dev": resource.MustParse("1"),
		}}}
	}
	sidecar, restarts := with("sidecar", "kerf.dev/gpu-percent", "25"), with("other-policy", "kerf.dev/gpu", "1")
	sidecar.RestartPolicy, restarts.RestartPolicy = &always, &never
	in := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "team", Name: "p", Annotations: map[string]string{
			"kerf.dev/placement-policy": "spread", "scheduling.kerf.dev/main": "GPU-1", "kerf.dev": "no domain",
			"notkerf.dev/x": "1", "example.com/kerf.dev/x": "1", "other": "1",
		}},
		Spec: corev1.PodSpec{
			NodeName:       "node-1",
			Priority:       new(int32(-7)),
			InitContainers: []corev1.Container{with("first", "kerf.dev/gpu-memory-gib", "3"), sidecar, restarts},
			Containers:     []corev1.Container{with("main", "kerf.dev/gpu-memory-gib", "10"), {Name: "plain"}},
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "debug", Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{"kerf.dev/gpu": resource.MustParse("1")}},
			}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	want := sharing.Pod{
		UID: "u", Namespace: "team", Name: "p", Node: "node-1", Priority: -7,
		Annotations: map[string]string{"kerf.dev/placement-policy": "spread", "scheduling.kerf.dev/main": "GPU-1"},
		Containers: []sharing.PodContainer{
			{Name: "first", Kind: sharing.ContainerInit, Limits: map[string]string{"kerf.dev/gpu-memory-gib": "3"}},
			{Name: "sidecar", Kind: sharing.ContainerSidecar, Limits: map[string]string{"kerf.dev/gpu-percent": "25"}},
			{Name: "other-policy", Kind: sharing.ContainerInit, Limits: map[string]string{"kerf.dev/gpu": "1"}},
			{Name: "main", Limits: map[string]string{"kerf.dev/gpu-memory-gib": "10"}},
			{Name: "plain"},
		},
	}
	if diff := cmp.Diff(want, Convert(in)); diff != "" {
		t.Error(diff)
	}
	for phase, terminal := range map[corev1.PodPhase]bool{
		"": false, corev1.PodPending: false, corev1.PodRunning: false, corev1.PodUnknown: false,
		corev1.PodSucceeded: true, corev1.PodFailed: true,
	} {
		if got := Convert(&corev1.Pod{Status: corev1.PodStatus{Phase: phase}}).Terminal; got != terminal {
			t.Errorf("phase %q: terminal %v, want %v", phase, got, terminal)
		}
	}
}

func TestDecimal(t *testing.T) {
	for in, want := range map[string]string{
		"10": "10", "10Gi": "10737418240", "1k": "1000", "1e3": "1000", "2000m": "2", "0": "0", "-3": "-3",
		"10.0":  "10",
		"1500m": "1500m", "0.5": "500m", "1e30": "1e30", "9223372036854775807": "9223372036854775807", "1n": "1n",
	} {
		got := decimal(resource.MustParse(in))
		if got != want {
			t.Errorf("decimal(%s) = %s, want %s", in, got, want)
		}
		_, _, err := sharing.RequestFromResources(map[string]string{sharing.ResourcePercent: got}, nil, "c")
		if takes := in == "10" || in == "2000m" || in == "10.0"; takes != (err == nil) || err != nil &&
			!errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("as percent, %s: %v", in, err)
		}
	}
}

// A bound pod may have the annotations of an earlier version; those of other pods are errors.
func TestAnnotationsOfAnEarlierVersion(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"placement.kerf.dev/main": "GPU-1",
		"kerf.dev/gpus": "2"}}}
	if got := Convert(p).Annotations; got["kerf.dev/gpus"] != "2" || got["scheduling.kerf.dev/main"] != "" {
		t.Errorf("not bound: %v", got)
	}
	p.Spec.NodeName = "n"
	if got := Convert(p).Annotations; got["kerf.dev/gpu-count"] != "2" || got["scheduling.kerf.dev/main"] != "GPU-1" ||
		len(got) != 2 {
		t.Errorf("bound: %v", got)
	}
}

// A limit that the scheduler's own claim covers is a reference to this claim. The limits of other containers stay.
func TestExtendedResources(t *testing.T) {
	limit := corev1.ResourceRequirements{Limits: corev1.ResourceList{"kerf.dev/gpu": resource.MustParse("1")}}
	p := &corev1.Pod{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: limit},
			{Name: "b", Resources: limit}}},
		Status: corev1.PodStatus{ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{
			ResourceClaimName: "p-extended-resources-x",
			RequestMappings: []corev1.ContainerExtendedResourceRequest{
				{ContainerName: "a", ResourceName: "kerf.dev/gpu", RequestName: "container-0-request-0"},
				{ContainerName: "b", ResourceName: "example.com/nic", RequestName: "container-1-request-0"},
			}}},
	}
	got := Convert(p)
	if len(got.Claims) != 1 || got.Claims[0].Claim != "p-extended-resources-x" {
		t.Fatalf("claims %+v", got.Claims)
	}
	want := []sharing.PodContainer{
		{Name: "a", Limits: map[string]string{},
			Claims: []sharing.ContainerClaim{{Name: got.Claims[0].Name, Request: "container-0-request-0"}}},
		{Name: "b", Limits: map[string]string{"kerf.dev/gpu": "1"}},
	}
	if diff := cmp.Diff(want, got.Containers); diff != "" {
		t.Error(diff)
	}
}
