// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// strongCapabilities are those by which root in a container changes the node, or other processes on it.
func strongCapabilities() []string {
	return []string{"ALL", "BPF", "DAC_READ_SEARCH", "MAC_ADMIN", "MAC_OVERRIDE", "PERFMON", "SYS_ADMIN", "SYS_BOOT",
		"SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO"}
}

// strong says by which rights a pod's containers could take off a cap, for people. Containers that were added to the
// running pod count.
func strong(p *corev1.Pod) []string {
	var out []string
	if p.Spec.HostPID {
		out = append(out, "hostPID")
	}
	if p.Spec.HostIPC {
		out = append(out, "hostIPC")
	}
	for i := range p.Spec.InitContainers {
		out = append(out, rights(p.Spec.InitContainers[i].Name, p.Spec.InitContainers[i].SecurityContext)...)
	}
	for i := range p.Spec.Containers {
		out = append(out, rights(p.Spec.Containers[i].Name, p.Spec.Containers[i].SecurityContext)...)
	}
	for i := range p.Spec.EphemeralContainers {
		out = append(out, rights(p.Spec.EphemeralContainers[i].Name, p.Spec.EphemeralContainers[i].SecurityContext)...)
	}
	return out
}

func rights(container string, c *corev1.SecurityContext) []string {
	if c == nil {
		return nil
	}
	var out []string
	if c.Privileged != nil && *c.Privileged {
		out = append(out, fmt.Sprintf("privileged container %q", container))
	}
	if c.ProcMount != nil && *c.ProcMount != corev1.DefaultProcMount {
		out = append(out, fmt.Sprintf("procMount %s of container %q", *c.ProcMount, container))
	}
	if c.Capabilities == nil {
		return out
	}
	for _, add := range c.Capabilities.Add {
		name := strings.TrimPrefix(strings.ToUpper(string(add)), "CAP_")
		if slices.Contains(strongCapabilities(), name) {
			out = append(out, fmt.Sprintf("capability %s of container %q", name, container))
		}
	}
	return out
}
