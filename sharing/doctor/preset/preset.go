// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package preset chooses the chart's preset for a node, from what its Node and its files report. It is pure.
package preset

import (
	"fmt"
	"strings"
)

// System is what a Node of a cluster reports about its system.
type System struct {
	// OSImage is the name in the node's os-release.
	OSImage string
	// KubeletVersion ends with the Kubernetes distribution if there is one: v1.33.3+k3s1.
	KubeletVersion string
	// ContainerRuntime is containerd:// or cri-o:// with a version.
	ContainerRuntime string
	// Labels are those of the Node.
	Labels map[string]string
}

// Default is the preset with the chart's own values.
const Default = "kubeadm"

// Setting is a value of the chart that a node needs in addition to its preset.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// settings are the values that a node needs next to a preset. Presets name the driver's library of amd64, and the
// default preset names the socket of containerd.
func (s System) settings(preset string) []Setting {
	var out []Setting
	if preset == Default && strings.HasPrefix(s.ContainerRuntime, "cri-o://") {
		out = append(out, Setting{"poolDefaults.containerRuntime", "crio"},
			Setting{keyRuntimeSocket, "/var/run/crio/crio.sock"})
	}
	if library := arm64Library(preset); library != "" && s.Labels["kubernetes.io/arch"] == "arm64" {
		out = append(out, Setting{keyDriverLibrary, library})
	}
	return out
}

// arm64Library is the driver's library on arm64 with a preset; empty if it is the same as on amd64.
func arm64Library(preset string) string {
	switch preset {
	case Default, "k3s", "rke2", "k0s", "microk8s":
		return "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1"
	case "bottlerocket":
		return "/aarch64-bottlerocket-linux-gnu/sys-root/usr/lib/libnvidia-ml.so.1"
	}
	return ""
}

// choose names the preset for what the Node reports. A Kubernetes distribution decides before the system below it,
// because it has the sockets and kubelet's folder. known is false if the Node has no sign of any preset.
func (s System) choose() (preset, reason string, known bool) {
	for _, d := range []struct{ sign, preset string }{{"+k3s", "k3s"}, {"+rke2", "rke2"}, {"+k0s", "k0s"}} {
		if strings.Contains(s.KubeletVersion, d.sign) {
			return d.preset, fmt.Sprintf("kubelet is version %s", s.KubeletVersion), true
		}
	}
	if s.Labels["microk8s.io/cluster"] == "true" {
		return "microk8s", "the node has the label microk8s.io/cluster=true", true
	}
	return s.withoutDistribution()
}

// withoutDistribution is choose for a node that may have another distribution than it reports.
func (s System) withoutDistribution() (preset, reason string, known bool) {
	for _, o := range []struct{ name, preset string }{
		{"Talos", "talos"}, {"Bottlerocket", "bottlerocket"}, {"Flatcar", "flatcar"},
		{"Container-Optimized OS", "cos"}, {"Red Hat Enterprise Linux CoreOS", "openshift"},
	} {
		if strings.HasPrefix(s.OSImage, o.name) {
			return o.preset, fmt.Sprintf("the system is %q", s.OSImage), true
		}
	}
	_, eks := s.Labels["eks.amazonaws.com/nodegroup"]
	if strings.HasPrefix(s.OSImage, "Amazon Linux 2023") && (eks || strings.Contains(s.KubeletVersion, "-eks-")) {
		return "eks-al2023", fmt.Sprintf("the system is %q, and kubelet is version %s", s.OSImage, s.KubeletVersion),
			true
	}
	return Default, fmt.Sprintf("no other preset is for system %q with kubelet %s", s.OSImage, s.KubeletVersion), false
}

// allows is true for presets of distributions, which run on several systems, and for the preset of the node's system.
func (s System) allows(preset string) bool {
	switch preset {
	case "k3s", "rke2", "k0s", "microk8s":
		return true
	}
	own, _, _ := s.withoutDistribution()
	return preset == own
}
