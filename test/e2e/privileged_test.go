// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// privilegedPolicy is the chart's file that keeps privileged containers off GPUs.
const privilegedPolicy = "agent/43-policy-privileged.yaml"

// A pod may have a privileged container beside a piece of a GPU where its profile says so, in the values or in the document,
// and no container of it has another profile; every other pod is refused as before.
func TestPrivilegedProfiles(t *testing.T) {
	e := begin(t)
	usual := e.chartFile("default", privilegedPolicy)
	t.Cleanup(func() {
		if err := e.apply(usual); err != nil {
			t.Error(err)
		}
	})
	if err := e.apply(e.chartFile("all", privilegedPolicy)); err != nil {
		t.Fatal(err)
	}
	try := func(annotations ...string) error {
		yes := true
		limits := corev1.ResourceList{"kerf.dev/gpu-percent": resource.MustParse("25")}
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "tried", Namespace: e.namespace, Annotations: map[string]string{}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Name: "main", Image: loadImage, Resources: corev1.ResourceRequirements{Limits: limits}},
				{Name: "beside", Image: loadImage, SecurityContext: &corev1.SecurityContext{Privileged: &yes}},
			}},
		}
		for i := 0; i+1 < len(annotations); i += 2 {
			p.Annotations[annotations[i]] = annotations[i+1]
		}
		_, err := e.client.CoreV1().Pods(e.namespace).Create(background(), p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	eventually(e, "the profiles that allow it", func() error { return try("kerf.dev/profile", "debug") })
	for name, annotations := range map[string][]string{
		"by the values":   {"kerf.dev/profile", "trusted"},
		"by the document": {"kerf.dev/profile", "driver-team"},
	} {
		if err := try(annotations...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, annotations := range map[string][]string{
		"no profile":                  nil,
		"another profile":             {"kerf.dev/profile", "notebook"},
		"of one container alone":      {"profile.kerf.dev/main", "debug"},
		"and another for a container": {"kerf.dev/profile", "debug", "profile.kerf.dev/main", "notebook"},
	} {
		if err := try(annotations...); err == nil || !strings.Contains(err.Error(), `container "beside" is privileged`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
