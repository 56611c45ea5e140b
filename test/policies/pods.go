// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pod is a harmless pod of one container "main", changed.
func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "tried"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{container("main")}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func container(name string) corev1.Container {
	return corev1.Container{Name: name, Image: "kerf.test/nothing:1"}
}

func named(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Name = name } }

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} }
}

// asks gives the main container limits: resource, amount, resource, amount. The API server wants requests to
// be the same for these, and fills them in.
func asks(limits ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { limit(&p.Spec.Containers[0], limits...) }
}

func limit(c *corev1.Container, limits ...string) {
	c.Resources.Limits = corev1.ResourceList{}
	for i := 0; i < len(limits); i += 2 {
		c.Resources.Limits[corev1.ResourceName(limits[i])] = resource.MustParse(limits[i+1])
	}
}

// first adds an init container with limits.
func first(limits ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := container("first")
		limit(&c, limits...)
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}

// addContainer adds a container with a security context.
func addContainer(s corev1.SecurityContext) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := container("second")
		c.SecurityContext = &s
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
}

func privileged() corev1.SecurityContext {
	yes := true
	return corev1.SecurityContext{Privileged: &yes}
}

func capable(names ...corev1.Capability) corev1.SecurityContext {
	return corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: names}}
}

// host puts the pod into namespaces of its node.
func host() func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.HostPID, p.Spec.HostIPC, p.Spec.HostNetwork = true, true, true }
}

// variable gives the main container an environment variable.
func variable(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: "1"})
	}
}

// mounts gives the pod hostPath volumes.
func mounts(paths ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for i, path := range paths {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
				Name:         string(rune('a' + i)),
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}},
			})
		}
	}
}

// asksAt mounts its node's /dev/null there in the container of that name. NVIDIA's runtime can be configured to take
// that for a request.
func asksAt(container, path string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		mounts("/dev/null")(p)
		for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
			for i := range list {
				if list[i].Name == container {
					list[i].VolumeMounts = append(list[i].VolumeMounts, corev1.VolumeMount{Name: "a", MountPath: path})
				}
			}
		}
	}
}

// template is a pod as a workload's template, with the labels that select it.
func template(change ...func(*corev1.Pod)) (corev1.PodTemplateSpec, *metav1.LabelSelector) {
	labels := map[string]string{"app": "tried"}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod(change...).Spec},
		&metav1.LabelSelector{MatchLabels: labels}
}

var called = metav1.ObjectMeta{Name: "tried"}

func deployment(change ...func(*corev1.Pod)) func(context.Context, *user) error {
	t, s := template(change...)
	return func(ctx context.Context, as *user) error {
		d := &apps.Deployment{ObjectMeta: called, Spec: apps.DeploymentSpec{Template: t, Selector: s}}
		_, err := as.apps.Deployments(as.namespace).Create(ctx, d, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

func statefulSet(change ...func(*corev1.Pod)) func(context.Context, *user) error {
	t, s := template(change...)
	return func(ctx context.Context, as *user) error {
		d := &apps.StatefulSet{ObjectMeta: called, Spec: apps.StatefulSetSpec{Template: t, Selector: s}}
		_, err := as.apps.StatefulSets(as.namespace).Create(ctx, d, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

func daemonSet(change ...func(*corev1.Pod)) func(context.Context, *user) error {
	t, s := template(change...)
	return func(ctx context.Context, as *user) error {
		d := &apps.DaemonSet{ObjectMeta: called, Spec: apps.DaemonSetSpec{Template: t, Selector: s}}
		_, err := as.apps.DaemonSets(as.namespace).Create(ctx, d, metav1.CreateOptions{DryRun: dry})
		return err
	}
}

func job(change ...func(*corev1.Pod)) func(context.Context, *user) error {
	t, _ := template(change...)
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	return func(ctx context.Context, as *user) error {
		d := &batch.Job{ObjectMeta: called, Spec: batch.JobSpec{Template: t}}
		_, err := as.batch.Jobs(as.namespace).Create(ctx, d, metav1.CreateOptions{DryRun: dry})
		return err
	}
}
