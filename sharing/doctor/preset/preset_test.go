// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package preset_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing/doctor/preset"
)

func TestPreset(t *testing.T) {
	for name, c := range map[string]struct {
		system preset.System
		want   string
		// reason is part of the reason, or of a setting.
		reason string
	}{
		"kubeadm": {preset.System{OSImage: "Ubuntu 24.04.3 LTS", KubeletVersion: "v1.37.1",
			ContainerRuntime: "containerd://2.1.4"}, "kubeadm", "Ubuntu"},
		"CRI-O": {preset.System{OSImage: "Debian GNU/Linux 12 (bookworm)", KubeletVersion: "v1.34.1",
			ContainerRuntime: "cri-o://1.34.0"}, "kubeadm",
			"{poolDefaults.containerRuntime crio} {poolDefaults.paths.runtimeSocket /var/run/crio/crio.sock}"},
		"K3s on arm64": {preset.System{KubeletVersion: "v1.33.3+k3s1",
			Labels: map[string]string{"kubernetes.io/arch": "arm64"}}, "k3s",
			"{poolDefaults.driverLibrary /usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1}"},
		"K3s": {preset.System{OSImage: "Ubuntu 24.04 LTS", KubeletVersion: "v1.33.3+k3s1"}, "k3s", "v1.33.3+k3s1"},
		// K3s runs on Flatcar with its own sockets.
		"K3s on Flatcar": {preset.System{OSImage: "Flatcar Container Linux by Kinvolk 4230.2.1 (Oklo)",
			KubeletVersion: "v1.33.3+k3s1"}, "k3s", "+k3s1"},
		"RKE2": {preset.System{OSImage: "SUSE Linux Enterprise Server 15 SP6", KubeletVersion: "v1.32.7+rke2r1"},
			"rke2", "+rke2r1"},
		"k0s": {preset.System{OSImage: "Ubuntu 24.04.2 LTS", KubeletVersion: "v1.33.4+k0s"}, "k0s", "+k0s"},
		"MicroK8s": {preset.System{OSImage: "Ubuntu 24.04.2 LTS", KubeletVersion: "v1.32.3",
			Labels: map[string]string{"microk8s.io/cluster": "true"}}, "microk8s", "microk8s.io/cluster"},
		"Talos": {preset.System{OSImage: "Talos (v1.11.2)", KubeletVersion: "v1.34.1"}, "talos", "Talos"},
		"Bottlerocket": {preset.System{OSImage: "Bottlerocket OS 1.44.0 (aws-k8s-1.33-nvidia)",
			KubeletVersion: "v1.33.1-eks-113cf36"}, "bottlerocket", "Bottlerocket"},
		"Flatcar": {preset.System{OSImage: "Flatcar Container Linux by Kinvolk 4230.2.1 (Oklo)",
			KubeletVersion: "v1.33.1"}, "flatcar", "Flatcar"},
		"COS": {preset.System{OSImage: "Container-Optimized OS from Google", KubeletVersion: "v1.33.2-gke.1240000"},
			"cos", "Google"},
		"Ubuntu on GKE": {preset.System{OSImage: "Ubuntu 22.04.5 LTS", KubeletVersion: "v1.33.2-gke.1240000"},
			"kubeadm", "no other preset"},
		"EKS": {preset.System{OSImage: "Amazon Linux 2023.8.20250818", KubeletVersion: "v1.33.3-eks-3abbec1"},
			"eks-al2023", "-eks-"},
		"Amazon Linux without EKS": {preset.System{OSImage: "Amazon Linux 2023.8.20250818",
			KubeletVersion: "v1.33.3"}, "kubeadm", "Amazon"},
		"OpenShift": {preset.System{OSImage: "Red Hat Enterprise Linux CoreOS 9.6.20250826-1",
			KubeletVersion: "v1.33.3", ContainerRuntime: "cri-o://1.33.4"}, "openshift", "CoreOS"},
		"RHEL":          {preset.System{OSImage: "Red Hat Enterprise Linux 9.6 (Plow)"}, "kubeadm", "Plow"},
		"an empty Node": {preset.System{}, "kubeadm", "no other preset"},
	} {
		got := preset.Decide(c.system, nil, nil)
		if got.Preset != c.want || !strings.Contains(fmt.Sprint(got.Reason, got.Set), c.reason) {
			t.Errorf("%s: %+v; want %s, %q", name, got, c.want, c.reason)
		}
		// The preset is certain if the Node has a sign of it.
		if certain := got.Doubt == ""; certain != (c.want != preset.Default) {
			t.Errorf("%s: doubt %q", name, got.Doubt)
		}
		if _, err := os.Stat(filepath.Join("../../../deploy/chart/presets", got.Preset+".yaml")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
