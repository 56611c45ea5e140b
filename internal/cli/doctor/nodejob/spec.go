// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodejob

import (
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Window bounds the Job: the pull of the image takes most of it.
	Window = 3 * time.Minute
	// kept is how long an ended Job stays if no command removes it.
	kept = time.Minute
	// container is the only container, program its program, and root where it has the node's root folder.
	container = "examine"
	program   = "/usr/local/bin/kerf"
	root      = "/host"
	// Command is the command of kerf that examines a node's files.
	Command = "node-files"
	// seLinuxType may read the files of the node and connect to its sockets, as the agent does.
	seLinuxType = "spc_t"
)

// spec is the Job. Its pod can change nothing on the node: it has the node's files read-only, and no capability.
func spec(name string, o Options) *batchv1.Job {
	never, seconds, ttl := int32(0), int64(Window/time.Second), int32(kept/time.Second)
	labels := map[string]string{"app.kubernetes.io/name": "kerf-doctor", "app.kubernetes.io/part-of": "kerf"}
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: batchv1.JobSpec{
			BackoffLimit: &never, ActiveDeadlineSeconds: &seconds, TTLSecondsAfterFinished: &ttl,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec(o)},
		},
	}
}

func podSpec(o Options) corev1.PodSpec {
	no, grace, user := false, int64(1), int64(0)
	return corev1.PodSpec{
		// The node is given, so that a full or cordoned node runs the pod, too.
		NodeName:                      o.Node,
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		RestartPolicy:                 corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: &grace,
		AutomountServiceAccountToken:  &no,
		EnableServiceLinks:            &no,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsUser: &user, RunAsGroup: &user,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			SELinuxOptions: &corev1.SELinuxOptions{Type: seLinuxType},
		},
		Containers: []corev1.Container{containerSpec(o)},
		Volumes: []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
	}
}

func containerSpec(o Options) corev1.Container {
	yes, no := true, false
	return corev1.Container{
		Name: container, Image: o.Image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{program},
		Args: append([]string{Command, "--root=" + root, "--"}, o.Paths...),
		// Images that name GPUs in their environment get none.
		Env: []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"),
				corev1.ResourceMemory: resource.MustParse("32Mi")},
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
		SecurityContext: &corev1.SecurityContext{
			ReadOnlyRootFilesystem: &yes, AllowPrivilegeEscalation: &no,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: root, ReadOnly: true,
			RecursiveReadOnly: recursive(o.Runtime)}},
	}
}

// recursive makes the file systems below the root folder read-only as well. CRI-O rejects that for the root folder: it
// shares new mounts of the host with such a container.
func recursive(runtime string) *corev1.RecursiveReadOnlyMode {
	mode := corev1.RecursiveReadOnlyIfPossible
	if strings.HasPrefix(runtime, "cri-o://") {
		return nil
	}
	return &mode
}
