// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// useLong allocates most of a GPU, and keeps it.
const useLong = "exec gpuload --json --alloc 60GiB --hold 1h"

// features are the labels that GPU feature discovery has written on the node.
func (e *testCase) features() map[string]string {
	e.Helper()
	out := map[string]string{}
	eventually(e, "features of GPU feature discovery", func() error {
		text, err := os.ReadFile(e.node.path("/etc/kubernetes/node-feature-discovery/features.d/gfd"))
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				out[key] = value
			}
		}
		if err == nil && out["nvidia.com/gpu.count"] == "" {
			err = fmt.Errorf("it has %q", text)
		}
		return err
	})
	return out
}

// nvidiaLabels are the labels of the node below nvidia.com that the agent sets.
func (e *testCase) nvidiaLabels() map[string]string {
	e.Helper()
	node, err := e.client.CoreV1().Nodes().Get(background(), e.node.env["NODE_NAME"], metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	out := map[string]string{}
	for key, value := range node.Labels {
		if strings.HasPrefix(key, "nvidia.com/") && key != nvidiaLabel {
			out[key] = value
		}
	}
	return out
}

// labelsAgree compares the labels that the agent sets with those of GPU feature discovery.
func (e *testCase) labelsAgree() {
	e.Helper()
	theirs, ours := e.features(), e.nvidiaLabels()
	for _, key := range []string{"gpu.product", "gpu.memory", "gpu.count", "mig.capable", "cuda.driver-version.full",
		"cuda.driver-version.major", "cuda.driver-version.minor", "cuda.driver-version.revision"} {
		if ours["nvidia.com/"+key] == "" {
			e.Errorf("the agent does not set nvidia.com/%s: %v", key, ours)
		}
	}
	for key, value := range ours {
		if theirs[key] != value {
			e.Errorf("label %s: the agent sets %q, GPU feature discovery %q", key, value, theirs[key])
		}
	}
}

// excludes takes GPUs out of Kerf's pool until the test ends.
func (e *testCase) excludes(gpus ...simGPU) {
	e.Helper()
	rules, all := e.readRules(), e.allOffers()
	e.Cleanup(func() {
		e.writeRules(rules)
		e.offersBecome(all)
	})
	var uuids []string
	for _, g := range gpus {
		uuids = append(uuids, g.UUID)
	}
	e.writeRules(e.changedRules("- name: default\n", "- name: default\n    gpuRules: [{uuid: ["+
		strings.Join(uuids, ", ")+"], excluded: true}]\n"))
	eventually(e, "fewer GPUs", func() error {
		if have := e.offers()["gpu"][1]; have != all["gpu"][1]-int64(len(gpus)) {
			return fmt.Errorf("%d are offered", have)
		}
		return nil
	})
}

// withNVIDIAPlugin runs NVIDIA's device plugin for two GPUs of the node, and GPU feature discovery, as the page says.
// It returns the containers of both.
func (e *testCase) withNVIDIAPlugin(gpus []simGPU) (containers func() string) {
	e.Helper()
	e.makeDriverRoot()
	e.nvidiaImage("kerf.test/k8s-device-plugin:v0.18.0", e.nvidiaProgram("nvidia-device-plugin"),
		e.nvidiaProgram("gpu-feature-discovery"))
	e.withNVIDIAChart(0, "nvdp",
		"nvidia-device-plugin --repo https://nvidia.github.io/k8s-device-plugin --version 0.18.0",
		e.moduleDir("k8sdeviceplugin", "github.com/NVIDIA/k8s-device-plugin")+"/deployments/helm/nvidia-device-plugin",
		"image.repository=kerf.test/k8s-device-plugin", "nfd.enabled=false",
		"cdi.nvidiaHookPath="+e.nvidiaProgram("nvidia-cdi-hook"))
	e.typePage(strings.NewReplacer("NODE", e.node.env["NODE_NAME"], "GPU-a", gpus[0].UUID, "GPU-b",
		gpus[1].UUID).Replace(e.pageBlock(nvidiaPage, 1)))
	return func() string {
		return e.nvidiaPods("nvdp-nvidia-device-plugin", "nvdp-nvidia-device-plugin-gpu-feature-discovery")
	}
}

// NVIDIA's device plugin and GPU feature discovery run on a node of Kerf, as the page says. Each plugin gives out its
// GPUs, and the labels of both are the same.
func TestNeighborNVIDIA(t *testing.T) {
	if !*runNeighbors {
		t.Skip("NVIDIA's programs are not built for the suite: run it with make e2e-neighbors")
	}
	e := beginWithAgent(t)
	theirs := e.node.gpus(t)[6:]
	e.excludes(theirs...)
	containers := e.withNVIDIAPlugin(theirs)
	before := containers()
	e.offersOther(len(theirs))

	first := e.create(reachesDriver(one("first", map[string]string{otherResource: "1"}, useLong)))
	ours := e.create(one("ours", gibs(10), "exec gpuload --json --alloc 9GiB --hold 1h"))
	rest := e.create(one("rest", wholeGPUs(5), hold))
	for _, p := range []*pod{first, ours, rest} {
		p.running()
	}
	e.usesOneOf(first, theirs)
	if l := ours.loads("main", 1)[0]; l.Error != nil || l.Total == nil || *l.Total != 10*gib {
		t.Errorf("the pod with a share: %v", l)
	}
	e.create(one("waits", wholeGPUs(1), hold)).event("none of the 6 GPUs that can give it has enough free now")
	second := e.create(reachesDriver(one("second", map[string]string{otherResource: "1"}, useLong)))
	second.running()
	e.usesOneOf(second, theirs)
	e.takesNoneOf(theirs...)
	if all, err := e.cordoned(); err != nil || len(all) != 0 {
		t.Errorf("each GPU belongs to one plugin, and these are cordoned: %v, %v", all, err)
	}
	node := e.node.env["NODE_NAME"]
	out := e.typePage(strings.ReplaceAll(e.pageBlock(nvidiaPage, 2), "NODE", node))
	if !strings.Contains(out, `"kerf.dev/gpu":"6"`) || !strings.Contains(out, `"nvidia.com/gpu":"2"`) ||
		strings.Contains(out, node+"/6") {
		t.Errorf("the page's commands print:\n%s", out)
	}
	e.labelsAgree()
	if after := containers(); after != before {
		t.Errorf("NVIDIA's containers are others, before:\n%s\nafter:\n%s", before, after)
	}
}

// usesOneOf says that the pod's program has memory of one of the GPUs, and of no other, without a cap.
func (e *testCase) usesOneOf(p *pod, gpus []simGPU) {
	e.Helper()
	if l := p.loads("main", 1)[0]; l.Error != nil || l.Total == nil || *l.Total <= 70*gib || l.Allocated != 60*gib {
		e.Errorf("%s has not its whole GPU: %v", p.name, l)
	}
	if caps := p.caps("main"); len(caps) != 0 {
		e.Errorf("%s has caps: %v", p.name, caps)
	}
	used := p.inDriver("main")
	if len(used) != 1 {
		e.Fatalf("%s uses %v, want one GPU", p.name, used)
	}
	for _, g := range gpus {
		if g.UUID == used[0].GPU {
			return
		}
	}
	e.Errorf("%s uses %v, want one of %v", p.name, used, gpus)
}

// nvidiaDevices waits until NVIDIA's DRA driver has published so many devices of the node.
func (e *testCase) nvidiaDevices(n int) {
	e.Helper()
	eventually(e, "devices of gpu.nvidia.com", func() error {
		list, err := e.client.ResourceV1().ResourceSlices().List(background(), metav1.ListOptions{
			FieldSelector: "spec.driver=gpu.nvidia.com,spec.nodeName=" + e.node.env["NODE_NAME"]})
		if err != nil {
			return err
		}
		have := 0
		for _, s := range list.Items {
			have += len(s.Spec.Devices)
		}
		if have != n {
			return fmt.Errorf("%d devices, want %d", have, n)
		}
		return nil
	})
}

// givenByNVIDIA waits until the GPU is cordoned, because NVIDIA's DRA driver has given it to a pod, or until it is not.
func (e *testCase) givenByNVIDIA(uuid string, want bool) {
	e.Helper()
	const reason = "another DRA driver has given it to a pod as k8s.gpu.nvidia.com/claim"
	eventually(e, fmt.Sprintf("GPU %s to be cordoned: %t", uuid, want), func() error {
		all, err := e.cordoned()
		if len(all) > 1 || strings.HasPrefix(all[uuid], reason) != want {
			err = errors.Join(err, fmt.Errorf("cordoned are %v", all))
		}
		return err
	})
}

// withNVIDIADRA runs NVIDIA's DRA driver on the node, as the page says. It returns the containers of the driver.
func (e *testCase) withNVIDIADRA(gpus int) (containers func() string) {
	e.Helper()
	e.makeDriverRoot()
	dir := e.moduleDir("dradriver", "sigs.k8s.io/dra-driver-nvidia-gpu")
	e.nvidiaImage("kerf.test/dra-driver-nvidia-gpu:v0.4.1", e.nvidiaProgram("gpu-kubelet-plugin"),
		e.nvidiaProgram("nvidia-cdi-hook"), dir+"/hack/kubelet-plugin-prestart.sh", "/bin/bash", "/usr/bin/find",
		"/usr/bin/head", "/usr/bin/basename", "/usr/bin/ln", "/usr/bin/date", "/usr/bin/env", "/usr/bin/ls",
		"/usr/bin/sleep")
	chart := dir + "/deployments/helm/dra-driver-nvidia-gpu"
	e.Cleanup(func() { e.kubectl("", "delete", "--ignore-not-found", "-f", chart+"/crds") })
	e.withNVIDIAChart(3, "dra", "oci://registry.k8s.io/dra-driver-nvidia/charts/dra-driver-nvidia-gpu --version 0.4.1",
		chart, "image.repository=kerf.test/dra-driver-nvidia-gpu", "image.tag=v0.4.1")
	e.typePage(strings.ReplaceAll(e.pageBlock(nvidiaPage, 4), "NODE", e.node.env["NODE_NAME"]))
	containers = func() string { return e.nvidiaPods("dra-driver-nvidia-gpu-kubelet-plugin") }
	containers()
	e.nvidiaDevices(gpus)
	return containers
}

// A GPU that NVIDIA's DRA driver has given to a pod takes no grant. It takes grants again when the pod has ended.
func TestNeighborNVIDIADRA(t *testing.T) {
	if !*runNeighbors {
		t.Skip("NVIDIA's programs are not built for the suite: run it with make e2e-neighbors")
	}
	e := beginWithAgent(t)
	gpus := e.node.gpus(t)
	theirs := gpus[3]
	containers := e.withNVIDIADRA(len(gpus))
	before := containers()

	e.templateOf("whole", "gpu.nvidia.com", "device.attributes['gpu.nvidia.com'].uuid == '"+theirs.UUID+"'", "")
	p := e.create(reachesDriver(byClaim("claims", "whole", useLong)))
	p.running()
	e.usesOneOf(p, gpus[3:4])
	e.givenByNVIDIA(theirs.UUID, true)
	if out := e.typePage(e.pageBlock(nvidiaPage, 5)); !strings.Contains(out, "cordoned") ||
		!strings.Contains(out, "another DRA driver has given it to a pod") {
		t.Errorf("the page's command prints:\n%s", out)
	}
	pinned := one("pinned", gibs(10), hold)
	pinned.annotations = map[string]string{"kerf.dev/gpu-uuid": theirs.UUID}
	e.create(pinned).event("not enough free", "another DRA driver has given it to a pod")
	rest := e.create(one("rest", wholeGPUs(len(gpus)-1), hold))
	rest.running()
	e.takesNoneOf(theirs)

	p.delete()
	e.givenByNVIDIA(theirs.UUID, false)
	pinned.name = "again"
	again := e.create(pinned)
	again.running()
	if g := e.wantHeld(again, "main", share(10*gib, 0)); g.Shares[0].GPU != theirs.UUID {
		t.Errorf("the grant is on GPU %s, want %s", g.Shares[0].GPU, theirs.UUID)
	}
	if after := containers(); after != before {
		t.Errorf("NVIDIA's containers are others, before:\n%s\nafter:\n%s", before, after)
	}
}
