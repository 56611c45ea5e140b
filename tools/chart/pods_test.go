// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// workloads are the pod templates of the chart's workloads by name, with the labels of the workloads.
func workloads(t *testing.T, set values) (map[string]corev1.PodTemplateSpec, map[string]map[string]string) {
	t.Helper()
	pods, labels := map[string]corev1.PodTemplateSpec{}, map[string]map[string]string{}
	for name, d := range byName[*appsv1.DaemonSet](t, set) {
		pods[name], labels[name] = d.Spec.Template, d.Labels
	}
	for name, d := range byName[*appsv1.Deployment](t, set) {
		pods[name], labels[name] = d.Spec.Template, d.Labels
	}
	return pods, labels
}

// TestValuesOfPods: each workload takes labels, annotations and variables for its pods, and the labels of all.
func TestValuesOfPods(t *testing.T) {
	set := values{"commonLabels": values{"cost-center": "ml"}}
	for _, section := range []string{"agent", "monitor", "scheduler", "console"} {
		set[section] = values{"podLabels": values{"team": section}, "podAnnotations": values{"mesh": "off"},
			"extraEnv": []any{values{"name": "TZ", "value": "UTC"}}}
	}
	set["console"].(values)["enabled"] = true
	pods, labels := workloads(t, set)
	if len(pods) != 4 {
		t.Fatalf("%d workloads", len(pods))
	}
	for name, p := range pods {
		section := strings.TrimPrefix(name, "kerf-")
		if p.Labels["team"] != section || p.Labels["cost-center"] != "ml" || labels[name]["cost-center"] != "ml" {
			t.Errorf("%s: labels %v of pods, %v of the workload", name, p.Labels, labels[name])
		}
		if p.Annotations["mesh"] != "off" {
			t.Errorf("%s: annotations %v", name, p.Annotations)
		}
		var found bool
		for _, e := range p.Spec.Containers[0].Env {
			found = found || e.Name == "TZ" && e.Value == "UTC"
		}
		if !found {
			t.Errorf("%s: variables %v", name, p.Spec.Containers[0].Env)
		}
	}
}

// TestRecommendedLabels: workloads have the labels that Kubernetes recommends. No pod has the version, since another
// label of the pod template restarts pods. What is applied without Helm names no release.
func TestRecommendedLabels(t *testing.T) {
	pods, labels := workloads(t, values{"console": values{"enabled": true}})
	for name, l := range labels {
		for key, want := range map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "kerf",
			"app.kubernetes.io/instance": "kerf", "app.kubernetes.io/version": "dev",
			"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "kerf-0.1.0"} {
			if l[key] != want {
				t.Errorf("%s: %s is %q, want %q", name, key, l[key], want)
			}
		}
		if _, has := pods[name].Labels["app.kubernetes.io/version"]; has {
			t.Errorf("%s: its pods restart with each version", name)
		}
	}
	_, labels = workloads(t, plain())
	for name, l := range labels {
		if _, has := l["app.kubernetes.io/managed-by"]; has {
			t.Errorf("%s: a manifest says that Helm manages it", name)
		}
	}
}

// TestAffinity: the Deployments take an affinity.
func TestAffinity(t *testing.T) {
	term := values{"nodeSelectorTerms": []any{values{"matchExpressions": []any{
		values{"key": "zone", "operator": "Exists"}}}}}
	section := values{"enabled": true, "affinity": values{
		"nodeAffinity": values{"requiredDuringSchedulingIgnoredDuringExecution": term}}}
	for name, d := range byName[*appsv1.Deployment](t, values{"console": section, "scheduler": section}) {
		if a := d.Spec.Template.Spec.Affinity; a == nil || a.NodeAffinity == nil {
			t.Errorf("%s: affinity %v", name, a)
		}
	}
}

// TestHelmTest: "helm test" runs kerf doctor of the cluster, and everything for it is removed after it passed.
func TestHelmTest(t *testing.T) {
	var pod *corev1.Pod
	for _, o := range objects(t, made(t, values{})) {
		if !strings.HasPrefix(o.file, "tests/") {
			continue
		}
		a := o.GetAnnotations()
		if a["helm.sh/hook"] != "test" || !strings.Contains(a["helm.sh/hook-delete-policy"], "hook-succeeded") {
			t.Errorf("%s: annotations %v", o.GetName(), a)
		}
		if p, is := o.Object.(*corev1.Pod); is {
			pod = p
		}
	}
	if pod == nil || strings.Join(append(pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args...), " ") !=
		"/usr/local/bin/kerf doctor" || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("the pod of the test: %+v", pod)
	}
	if files := made(t, values{"uninstall": values{"enabled": true}}); files["tests/doctor.yaml"] != "" {
		t.Error("a chart that is being removed has a test")
	}
}
