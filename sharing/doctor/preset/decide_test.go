// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package preset_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing/doctor/preset"
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	k3sSocket        = "/run/k3s/containerd/containerd.sock"
	crioSocket       = "/var/run/crio/crio.sock"
	kubeletSocket    = "/var/lib/kubelet/pod-resources/kubelet.sock"
	k0sKubelet       = "/var/lib/k0s/kubelet/pod-resources/kubelet.sock"
	debianLibrary    = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
	armLibrary       = "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1"
	redHatLibrary    = "/usr/lib64/libnvidia-ml.so.1"
	ownToolkit       = "/etc/nvidia-container-runtime"
	operatorToolkit  = "/usr/local/nvidia/toolkit/.config/nvidia-container-runtime"
	nriSocket        = "/var/run/nri/nri.sock"
	k3sVersion       = "v1.33.3+k3s1"
)

// all are presets as the chart has them.
func all() []preset.Values {
	plain := func(name string) preset.Values {
		return preset.Values{Name: name, Runtime: "containerd", DriverLibrary: debianLibrary,
			Kubelet: "/var/lib/kubelet", CDI: "/etc/cdi", CDISource: "/var/run/cdi", Hook: "/opt/kerf",
			Toolkit: ownToolkit, RuntimeSocket: containerdSocket, NRISocket: nriSocket}
	}
	cos, k0s, k3s, openshift, rke2 := plain("cos"), plain("k0s"), plain("k3s"), plain("openshift"), plain("rke2")
	cos.DriverLibrary, cos.Hook, cos.Toolkit = "/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1",
		"/home/kubernetes/bin/kerf", ""
	k0s.RuntimeSocket, k0s.Kubelet = "/run/k0s/containerd.sock", "/var/lib/k0s/kubelet"
	k3s.RuntimeSocket = k3sSocket
	openshift.RuntimeSocket, openshift.Runtime = crioSocket, "crio"
	rke2.RuntimeSocket, rke2.Toolkit = k3sSocket, operatorToolkit
	eks := plain("eks-al2023")
	eks.DriverLibrary = redHatLibrary
	return []preset.Values{cos, eks, k0s, k3s, plain("kubeadm"), openshift, rke2}
}

// node has listeners at these sockets, these files, and writable folders.
func node(sockets []string, files ...string) *preset.Files {
	f := &preset.Files{Paths: map[string]preset.Path{}}
	for _, p := range preset.Paths(all()) {
		f.Paths[p] = preset.Path{Mount: &preset.Mount{}}
	}
	for _, s := range append(slices.Clone(sockets), nriSocket) {
		f.Paths[s] = preset.Path{Kind: preset.Socket, Listens: true, Mount: &preset.Mount{}}
	}
	for _, p := range files {
		f.Paths[p] = preset.Path{Kind: preset.File, Mount: &preset.Mount{}}
	}
	return f
}

func TestPaths(t *testing.T) {
	got := preset.Paths(all())
	for _, want := range []string{containerdSocket, k3sSocket, kubeletSocket, k0sKubelet, "/opt/kerf", "/etc/cdi",
		ownToolkit + "/config.toml", armLibrary} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) || slices.Contains(got, "") {
		t.Errorf("paths %q", got)
	}
}

// The files of a node confirm the preset that the Node suggests, or name another one.
func TestDecide(t *testing.T) {
	const toolkit, operator = ownToolkit + "/config.toml", operatorToolkit + "/config.toml"
	ubuntu := preset.System{OSImage: "Ubuntu 24.04.3 LTS", KubeletVersion: "v1.37.1",
		ContainerRuntime: "containerd://2"}
	k3s, crio, arm := ubuntu, ubuntu, ubuntu
	k3s.KubeletVersion, crio.ContainerRuntime = k3sVersion, "cri-o://1.34.0"
	arm.Labels = map[string]string{"kubernetes.io/arch": "arm64"}
	cos := preset.System{OSImage: "Container-Optimized OS from Google"}
	usual := []string{containerdSocket, kubeletSocket}
	for name, c := range map[string]struct {
		system preset.System
		files  *preset.Files
		want   string
		// reason, set, lacks and doubt are parts of them; empty: nothing.
		reason, set, lacks, doubt string
	}{
		"kubeadm": {ubuntu, node(usual, debianLibrary, toolkit), "kubeadm", "has the sockets", "", "", ""},
		"K3s": {k3s, node([]string{k3sSocket, kubeletSocket}, debianLibrary, toolkit), "k3s", "has the sockets", "", "",
			""},
		"K3s without a sign": {ubuntu, node([]string{k3sSocket, kubeletSocket}, debianLibrary, toolkit), "k3s",
			"no listener at " + containerdSocket, "", "", ""},
		"RKE2 without a sign": {ubuntu, node([]string{k3sSocket, kubeletSocket}, debianLibrary, operator), "rke2",
			"no listener at " + containerdSocket, "", "", ""},
		"K3s or RKE2": {ubuntu, node([]string{k3sSocket, kubeletSocket}, debianLibrary), "k3s", "", "",
			"poolDefaults.paths.toolkit " + toolkit, "presets k3s and rke2 fit equally well"},
		"k0s without a sign": {ubuntu, node([]string{"/run/k0s/containerd.sock", k0sKubelet}, debianLibrary, toolkit),
			"k0s", containerdSocket + " and " + kubeletSocket, "", "", ""},
		"K3s with an external runtime": {k3s, node(usual, debianLibrary, toolkit), "kubeadm",
			"no listener at " + k3sSocket, "", "", ""},
		// cos has fewer paths, but it is for another system.
		"a new node without a driver": {k3s, node(usual), "kubeadm", "", "",
			"poolDefaults.driverLibrary " + debianLibrary, ""},
		"two runtimes": {ubuntu, node(append(usual, k3sSocket), debianLibrary, toolkit), "kubeadm", "", "", "",
			containerdSocket + " and " + k3sSocket},
		"a runtime of another kind": {ubuntu, node(append(usual, crioSocket), debianLibrary, toolkit), "kubeadm",
			"", "", "", ""},
		"CRI-O": {crio, node([]string{crioSocket, kubeletSocket}, debianLibrary, toolkit), "kubeadm", "",
			"poolDefaults.containerRuntime=crio poolDefaults.paths.runtimeSocket=" + crioSocket, "", ""},
		"no known runtime": {ubuntu, node([]string{kubeletSocket}, debianLibrary, toolkit), "kubeadm", "", "",
			"poolDefaults.paths.runtimeSocket " + containerdSocket, "no other preset fits"},
		"RHEL": {ubuntu, node(usual, redHatLibrary, toolkit), "kubeadm", "",
			"poolDefaults.driverLibrary=" + redHatLibrary, "", ""},
		"arm64": {arm, node(usual, armLibrary, toolkit), "kubeadm", "",
			"poolDefaults.driverLibrary=" + armLibrary, "", ""},
		"arm64 with a library elsewhere": {arm, node(usual, redHatLibrary, toolkit), "kubeadm", "",
			"poolDefaults.driverLibrary=" + redHatLibrary, "", ""},
		"two libraries": {ubuntu, node(usual, redHatLibrary, armLibrary, toolkit), "kubeadm", "", "",
			"set it to " + redHatLibrary + " or " + armLibrary, ""},
		"COS": {cos, node(usual, all()[0].DriverLibrary), "cos", "", "", "", ""},
	} {
		got := preset.Decide(c.system, all(), c.files)
		var set, lacks []string
		for _, s := range got.Set {
			set = append(set, s.Key+"="+s.Value)
		}
		for _, l := range got.Lacks {
			lacks = append(lacks, l.Key+" "+l.Path+" "+l.Problem+"; "+l.Remedy)
		}
		if got.Preset != c.want || !strings.Contains(got.Reason, c.reason) || strings.Join(set, " ") != c.set ||
			!has(strings.Join(lacks, "\n"), c.lacks) || !has(got.Doubt, c.doubt) {
			t.Errorf("%s: %+v, want %+v", name, got, c)
		}
	}
}

// has reports whether part is in text, which is empty if part is.
func has(text, part string) bool { return strings.Contains(text, part) && (part != "" || text == "") }

// Each path of the preset that the node lacks has its problem.
func TestLacks(t *testing.T) {
	files := func(change map[string]preset.Path) *preset.Files {
		f := node([]string{k3sSocket, kubeletSocket}, debianLibrary, ownToolkit+"/config.toml")
		maps.Copy(f.Paths, change)
		return f
	}
	const missing = "missing"
	for path, problems := range map[string]map[string]preset.Path{
		nriSocket: {"does not exist": {}, "is not a socket": {Kind: preset.File},
			"has no listener": {Kind: preset.Socket}, `could not be examined: "denied"`: {Problem: "denied"}},
		"/opt/kerf": {"is on a read-only file system": {Mount: &preset.Mount{ReadOnly: true}},
			"is on a file system that is mounted noexec": {Mount: &preset.Mount{NoExec: true}},
			`has unknown mount flags: "no table"`:        {}, missing: {Kind: preset.Other}},
		"/etc/cdi": {"is on a read-only file system": {Kind: preset.Folder, Mount: &preset.Mount{ReadOnly: true}}},
		"/var/run/cdi": {"does not exist, and its file system is read-only": {
			Mount: &preset.Mount{ReadOnly: true}}},
		debianLibrary: {"does not exist": {}, "is not a file": {Kind: preset.Folder}},
	} {
		for problem, p := range problems {
			f := files(map[string]preset.Path{path: p})
			f.MountProblem = "no table"
			if problem == missing {
				delete(f.Paths, path)
				problem = "was not examined"
			}
			got := preset.Decide(preset.System{KubeletVersion: k3sVersion}, all(), f)
			if len(got.Lacks) != 1 || got.Lacks[0].Path != path || got.Lacks[0].Problem != problem ||
				got.Lacks[0].Remedy == "" || got.Preset != "k3s" || got.Doubt != "" {
				t.Errorf("%s %s: %+v", path, problem, got)
			}
		}
	}
	read := files(map[string]preset.Path{"/var/run/cdi": {Kind: preset.Folder, Mount: &preset.Mount{ReadOnly: true}}})
	if got := preset.Decide(preset.System{KubeletVersion: k3sVersion}, all(), read); len(got.Lacks) != 0 {
		t.Errorf("a read-only folder with NVIDIA's spec: %+v", got)
	}
}

// Paths that decide and could not be examined leave the preset of the Node. It is certain only if the Node has a sign.
func TestUnknownFiles(t *testing.T) {
	f := node([]string{kubeletSocket}, debianLibrary, ownToolkit+"/config.toml")
	f.Paths[containerdSocket] = preset.Path{Problem: "permission denied"}
	got := preset.Decide(preset.System{KubeletVersion: "v1.37.1"}, all(), f)
	if got.Preset != preset.Default || !strings.Contains(got.Doubt, containerdSocket) ||
		strings.Contains(got.Reason, "has the sockets") {
		t.Errorf("without a sign: %+v", got)
	}
	f.Paths[k3sSocket] = f.Paths[containerdSocket]
	got = preset.Decide(preset.System{KubeletVersion: k3sVersion}, all(), f)
	if got.Preset != "k3s" || got.Doubt != "" {
		t.Errorf("with a sign: %+v", got)
	}
}

// The name in os-release of the node wins over that of the Node.
func TestNameOfTheSystem(t *testing.T) {
	f := node([]string{containerdSocket, kubeletSocket}, all()[0].DriverLibrary)
	f.OSImage = "Container-Optimized OS from Google"
	want := preset.Choice{Preset: "cos", Set: []preset.Setting{}, Lacks: []preset.Lack{}, Reason: "the system is " +
		`"Container-Optimized OS from Google"; the node has the sockets of this preset`}
	got := preset.Decide(preset.System{OSImage: "Unknown", KubeletVersion: "v1.33.2-gke.1"}, all(), f)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
