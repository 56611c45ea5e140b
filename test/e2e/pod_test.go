// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podSpec is a pod as a test writes it.
type podSpec struct {
	name       string
	containers []container
	// init are its init containers.
	init        []container
	annotations map[string]string
	// restart is Never when empty.
	restart      corev1.RestartPolicy
	runtimeClass string
	// namespace is the test's own when empty.
	namespace string
	// edit changes what nothing above can say.
	edit func(*corev1.Pod)
}

// container is one container of a pod.
type container struct {
	name string // "main" when empty
	// run is a shell command; the image has busybox's shell and gpuload.
	run    string
	image  string // gpuload's when empty
	limits map[string]string
	env    map[string]string
	// sidecar makes an init container one that keeps running while those after it run.
	sidecar bool
}

// one is a pod of a single container.
func one(name string, limits map[string]string, run string) podSpec {
	return podSpec{name: name, containers: []container{{run: run, limits: limits}}}
}

// What containers request.
func gibs(n int) map[string]string {
	return map[string]string{"kerf.dev/gpu-memory-gib": strconv.Itoa(n)}
}

func percent(n int) map[string]string {
	return map[string]string{"kerf.dev/gpu-percent": strconv.Itoa(n)}
}

func wholeGPUs(n int) map[string]string { return map[string]string{"kerf.dev/gpu": strconv.Itoa(n)} }

// hold is a program that uses no GPU and runs until a signal ends it.
const hold = "exec sleep 3600"

// object makes the pod for the API server.
func (s podSpec) object(namespace string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: namespace, Annotations: s.annotations},
		Spec: corev1.PodSpec{
			RestartPolicy:                 s.restart,
			TerminationGracePeriodSeconds: new(int64), // the programs here have nothing to save
			EnableServiceLinks:            new(bool),
			AutomountServiceAccountToken:  new(bool),
		},
	}
	if s.namespace != "" {
		p.Namespace = s.namespace
	}
	if s.restart == "" {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	if s.runtimeClass != "" {
		p.Spec.RuntimeClassName = &s.runtimeClass
	}
	for _, c := range s.init {
		p.Spec.InitContainers = append(p.Spec.InitContainers, c.object())
	}
	for _, c := range s.containers {
		p.Spec.Containers = append(p.Spec.Containers, c.object())
	}
	if s.edit != nil {
		s.edit(p)
	}
	return p
}

func (c container) object() corev1.Container {
	o := corev1.Container{Name: c.name, Image: c.image, ImagePullPolicy: corev1.PullNever}
	if c.run != "" { // a signal to the shell shall end what it runs, at once
		o.Command = []string{"/bin/sh", "-c", c.run}
	}
	if c.name == "" {
		o.Name = "main"
	}
	if c.image == "" {
		o.Image = loadImage
	}
	for _, name := range slices.Sorted(maps.Keys(c.env)) {
		o.Env = append(o.Env, corev1.EnvVar{Name: name, Value: c.env[name]})
	}
	if len(c.limits) > 0 {
		o.Resources.Limits = corev1.ResourceList{}
		for name, amount := range c.limits {
			o.Resources.Limits[corev1.ResourceName(name)] = resource.MustParse(amount)
		}
	}
	if c.sidecar {
		always := corev1.ContainerRestartPolicyAlways
		o.RestartPolicy = &always
	}
	return o
}
