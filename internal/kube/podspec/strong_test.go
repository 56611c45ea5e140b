// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestStrong(t *testing.T) {
	with := func(c *corev1.SecurityContext) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}, {Name: "side", SecurityContext: c}}}
	}
	adding := func(names ...corev1.Capability) *corev1.SecurityContext {
		return &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: names}}
	}
	debug := corev1.EphemeralContainer{}
	debug.Name, debug.SecurityContext = "debug", &corev1.SecurityContext{Privileged: new(true)}
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want []string
	}{
		"plain":          {with(nil), nil},
		"not privileged": {with(&corev1.SecurityContext{Privileged: new(false)}), nil},
		"privileged": {with(&corev1.SecurityContext{Privileged: new(true)}),
			[]string{`privileged container "side"`}},
		"an init container": {corev1.PodSpec{InitContainers: []corev1.Container{{Name: "first",
			SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}}}, []string{`privileged container "first"`}},
		"a debug container": {corev1.PodSpec{EphemeralContainers: []corev1.EphemeralContainer{debug}},
			[]string{`privileged container "debug"`}},
		"RDMA": {with(adding("IPC_LOCK", "NET_BIND_SERVICE")), nil},
		"capabilities": {with(adding("CAP_SYS_ADMIN", "sys_ptrace")),
			[]string{`capability SYS_ADMIN of container "side"`, `capability SYS_PTRACE of container "side"`}},
		"namespaces of the host": {corev1.PodSpec{HostPID: true, HostIPC: true, HostNetwork: true},
			[]string{"hostPID", "hostIPC"}},
		"unmasked proc": {with(&corev1.SecurityContext{ProcMount: new(corev1.UnmaskedProcMount)}),
			[]string{`procMount Unmasked of container "side"`}},
	} {
		if got := Convert(&corev1.Pod{Spec: tc.spec}).Strong; !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
