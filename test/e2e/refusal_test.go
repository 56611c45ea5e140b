// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mounting is a pod that mounts a path of its node.
func mounting(path string, limits map[string]string) podSpec {
	s := one("mounting", limits, hold)
	s.edit = func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: "/host"}}
	}
	return s
}

// secured is a pod whose second container, which asks for nothing, may more than others.
func secured(c corev1.SecurityContext, limits map[string]string) podSpec {
	s := one("secured", limits, hold)
	s.containers = append(s.containers, container{name: "neighbor", run: hold})
	s.edit = func(p *corev1.Pod) { p.Spec.Containers[1].SecurityContext = &c }
	return s
}

// A pod that would bypass the caps is rejected, and its author gets a message that says what to do instead.
func TestWaysPastAreRefused(t *testing.T) {
	t.Parallel()
	e := begin(t)
	const past = "is not in the list of those that a pod with a GPU may mount"
	const strong = "it could take off its own cap; leave that out, or request no kerf.dev resource"
	inHost := one("in-host", gibs(1), hold)
	inHost.edit = func(p *corev1.Pod) { p.Spec.HostPID, p.Spec.HostNetwork = true, true }
	for name, c := range map[string]struct {
		pod  podSpec
		said string
	}{
		"device file":                {mounting("/dev/nvidia0", gibs(1)), past},
		"device file, roundabout":    {mounting("/dev/./nvidia0", gibs(1)), past},
		"Kerf's sockets":             {mounting("/var/run/kerf", gibs(1)), past},
		"Kerf's hook":                {mounting("/opt/kerf", gibs(1)), past},
		"CDI specs":                  {mounting("/etc/cdi", gibs(1)), past},
		"kubelet's plugins":          {mounting("/var/lib/kubelet/device-plugins", gibs(1)), past},
		"all devices":                {mounting("/dev", gibs(1)), past},
		"all files":                  {mounting("/", gibs(1)), past},
		"NRI":                        {mounting("/var/run/nri", gibs(1)), past},
		"cgroups":                    {mounting("/sys/fs/cgroup", gibs(1)), past},
		"the node's programs":        {mounting("/usr", gibs(1)), past},
		"links to devices":           {mounting("/dev/char", gibs(1)), past},
		"privileged next to a share": {secured(corev1.SecurityContext{Privileged: new(true)}, gibs(1)), strong},
		"the host's namespaces":      {inHost, "the pod sets hostPID, hostNetwork: a pod that requests a GPU"},
		"no seccomp next to a share": {secured(
			corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}},
			gibs(1)), strong},
		"SYS_PTRACE next to a share": {secured(
			corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}},
			gibs(1)), strong},
		"SYS_ADMIN next to a GPU": {
			secured(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}},
				wholeGPUs(1)), strong,
		},
		"parts and whole GPUs": {one("mixed", both(gibs(1), wholeGPUs(1)), hold), "one container requests one kind"},
	} {
		if said := e.refused(c.pod); !strings.Contains(said, c.said) {
			t.Errorf("%s: refused with %q, want %q in it", name, said, c.said)
		}
	}
	// The same without a share is none of Kerf's business.
	harmless := e.create(secured(corev1.SecurityContext{Privileged: new(true)}, nil))
	harmless.running()
}

// An author who writes 10Gi into a Deployment or a Job gets the error at once, and not through missing pods.
func TestTemplatesAreRefused(t *testing.T) {
	t.Parallel()
	e := begin(t)
	labels := map[string]string{"app": "a"}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       one("a", map[string]string{"kerf.dev/gpu-memory-gib": "10Gi"}, hold).object("").Spec,
	}
	const want = `kerf.dev/gpu-memory-gib must be a whole number from 1 to 100000, and is "10Gi"; write 10, the unit is GiB`
	_, err := e.client.BatchV1().Jobs(e.namespace).Create(background(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: batchv1.JobSpec{Template: template},
	}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a job: %v", err)
	}
	template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	_, err = e.client.AppsV1().Deployments(e.namespace).Create(background(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a deployment: %v", err)
	}
}

// Only the scheduler decides where a pod lies: no one else adds that to a running pod, or through a binding.
func TestPlacementIsTheSchedulers(t *testing.T) {
	t.Parallel()
	e := begin(t)
	spec := one("placed", gibs(1), hold)
	spec.edit = func(p *corev1.Pod) { p.Spec.SchedulerName = "someone-elses" }
	p := e.create(spec)
	const want = "only the scheduler may write annotations scheduling.kerf.dev/*"
	uuid := e.node.gpus(t)[3].UUID
	patch := []byte(`{"metadata":{"annotations":{"scheduling.kerf.dev/main":"` + uuid + `"}}}`)
	_, err := e.client.CoreV1().Pods(p.namespace).Patch(background(), p.name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a patch of the pod: %v", err)
	}
	err = e.client.CoreV1().Pods(p.namespace).Bind(background(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, Annotations: map[string]string{"scheduling.kerf.dev/main": uuid}},
		Target:     corev1.ObjectReference{Kind: "Node", Name: e.node.env["NODE_NAME"]},
	}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a binding: %v", err)
	}
	if o := p.get(); o.Spec.NodeName != "" || o.Annotations["scheduling.kerf.dev/main"] != "" {
		t.Errorf("it was bound to %q, with %v", o.Spec.NodeName, o.Annotations)
	}
}
