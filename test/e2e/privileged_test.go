// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kerf-gpu/kerf/sharing"
)

// privilegedPolicy is the chart's file that keeps privileged containers off GPUs.
const privilegedPolicy = "agent/43-policy-privileged.yaml"

// A pod may have a privileged container and a share of a GPU if its profile says so, in the values or in the config. No
// container of it may have another profile. Every other pod is refused as before. If the profiles' rules are unknown,
// Kerf refuses pods whose answer depends on them, and no others.
func TestPrivilegedProfiles(t *testing.T) {
	e := begin(t)
	e.freshParams()
	usual, err := os.ReadFile(filepath.Join(e.node.env["REPO"], "deploy/manifests/43-policy-privileged.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.apply(string(usual)); err != nil {
			t.Error(err)
		}
	})
	byProfile := e.chartFile("all", "mutation/privileged.yaml") + "---\n" +
		e.chartFile("default", "mutation/amounts.yaml")
	t.Cleanup(func() { e.kubectl(byProfile, "delete", "--ignore-not-found", "-f", "-") })
	for _, text := range []string{byProfile, e.chartFile("all", privilegedPolicy)} {
		if err := e.apply(text); err != nil {
			t.Fatal(err)
		}
	}
	try := func(annotations ...string) error {
		yes := true
		limits := corev1.ResourceList{"kerf.dev/gpu-percent": resource.MustParse("25")}
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "tried", Namespace: e.namespace, Annotations: map[string]string{},
				Labels: map[string]string{}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Name: "main", Image: loadImage, Resources: corev1.ResourceRequirements{Limits: limits}},
				{Name: "neighbor", Image: loadImage, SecurityContext: &corev1.SecurityContext{Privileged: &yes}},
			}},
		}
		for i := 0; i+1 < len(annotations); i += 2 {
			if annotations[i] == sharing.PrivilegedLabel {
				p.Labels[sharing.PrivilegedLabel] = annotations[i+1]
				continue
			}
			p.Annotations[annotations[i]] = annotations[i+1]
		}
		_, err := e.client.CoreV1().Pods(e.namespace).Create(background(), p,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	eventually(e, "the profiles that allow it", func() error {
		return errors.Join(try("kerf.dev/profile", "debug"), try("kerf.dev/profile", "driver-team"))
	})
	const byPolicy, byOther = `container "neighbor" is privileged`,
		`does not allow a pod beyond the Pod Security baseline`
	expect := func(when string, taken map[string][]string, refused map[string][]string) {
		t.Helper()
		for name, annotations := range taken {
			if err := try(annotations...); err != nil {
				t.Errorf("%s, %s: %v", when, name, err)
			}
		}
		for name, annotations := range refused {
			if err := try(annotations...); err == nil || !strings.Contains(err.Error(), byPolicy) &&
				!strings.Contains(err.Error(), byOther) {
				t.Errorf("%s, %s: %v", when, name, err)
			}
		}
	}
	never := map[string][]string{
		"no profile":                  nil,
		"another profile":             {"kerf.dev/profile", "notebook"},
		"another with the label":      {"kerf.dev/profile", "notebook", sharing.PrivilegedLabel, "profile"},
		"the label alone":             {sharing.PrivilegedLabel, "profile"},
		"of one container alone":      {"profile.kerf.dev/main", "debug"},
		"and another for a container": {"kerf.dev/profile", "debug", "profile.kerf.dev/main", "notebook"},
	}
	expect("by the values", map[string][]string{"its values": {"kerf.dev/profile", "trusted"},
		"its document": {"kerf.dev/profile", "driver-team"}}, never)

	// What the scheduler writes for another document.
	maps := e.client.CoreV1().ConfigMaps(kerfNamespace)
	m, err := maps.Get(background(), profileAmounts, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.Annotations, m.Data = map[string]string{"kerf.dev/sharing-config-hash": "x"},
		map[string]string{"notebook": "kerf.dev/gpu-percent=25", "other-team": "kerf.dev/gpu-percent=25 privileged"}
	if _, err := maps.Update(background(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(e, "what the other document says", func() error { return try("kerf.dev/profile", "other-team") })
	never["not any more"] = []string{"kerf.dev/profile", "driver-team"}
	expect("by another document", map[string][]string{"its values": {"kerf.dev/profile", "trusted"}}, never)

	if err := maps.Delete(background(), profileAmounts, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(e, "refusal where nothing is known", func() error {
		if err := try("kerf.dev/profile", "other-team"); err == nil ||
			!strings.Contains(err.Error(), "no params found") {
			return fmt.Errorf("it is not refused for that: %w", errors.Join(err))
		}
		return nil
	})
	for what, s := range map[string]podSpec{"no GPU": one("none", nil, hold), "a GPU": one("amounts", gibs(1), hold)} {
		if _, err := e.admitted(s); err != nil {
			t.Errorf("a pod with %s, where nothing is known: %v", what, err)
		}
	}
	strongAlone := one("strong", nil, hold)
	strongAlone.edit = func(p *corev1.Pod) {
		yes := true
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes}
	}
	if _, err := e.admitted(strongAlone); err != nil {
		t.Errorf("a privileged pod without a GPU, where nothing is known: %v", err)
	}
}
