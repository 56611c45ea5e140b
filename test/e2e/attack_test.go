// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// forgery is a pod by which a tenant tries to get at GPUs that are not his.
func forgery(name string, limits map[string]string, run string, edit func(*podSpec)) podSpec {
	s := one("forged-"+dnsName(name), limits, run)
	if edit != nil {
		edit(&s)
	}
	return s
}

// forgeries are what a tenant can write in a pod, given that he knows of another's grant and GPU. The runtime
// class is that of a runtime that obeys NVIDIA_VISIBLE_DEVICES.
func forgeries(nodeName, grant, uuid string) map[string]func(*podSpec) {
	env := func(values map[string]string) func(*podSpec) {
		return func(s *podSpec) { s.runtimeClass, s.containers[0].env = "nvidia", values }
	}
	all := env(map[string]string{"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all", "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"})
	return map[string]func(*podSpec){
		"all by environment":  all,
		"uuid by environment": env(map[string]string{"NVIDIA_VISIBLE_DEVICES": uuid, "CUDA_VISIBLE_DEVICES": uuid}),
		"all by image": func(s *podSpec) {
			s.runtimeClass, s.containers[0].image = "nvidia", "kerf.test/greedy:1"
		},
		"kerf's environment": env(map[string]string{"KERF_GRANT": grant, "KERF_GPUS": uuid, "KERF_NEAR": "numa0:1"}),
		"cdi annotations": func(s *podSpec) {
			s.annotations = map[string]string{"cdi.k8s.io/vendor1_class": "nvidia.com/gpu=all", "cdi.k8s.io/kerf": "kerf.dev/gpu=" + uuid}
		},
		"node name": func(s *podSpec) {
			all(s)
			s.edit = func(p *corev1.Pod) { p.Spec.NodeName = nodeName }
		},
	}
}

// Nothing that a tenant can write in a pod without a request gets it a GPU.
func TestForgedPodsGetNoGPU(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	victim := e.create(one("victim", gibs(4), hold))
	victim.running()
	g := e.grantOf(victim, "main")
	pods := map[string]*pod{}
	for name, edit := range forgeries(e.node.env["NODE_NAME"], g.ID, g.Fragments[0].GPU) {
		pods[name] = e.create(forgery(name, nil, "ls /dev; gpuload --json", edit))
	}
	for name, p := range pods {
		p.phase(corev1.PodFailed)
		if l := p.loads("main", 1)[0]; l.Error == nil || l.Total != nil {
			t.Errorf("%s: it sees a GPU: %v", name, l)
		}
		if log := p.logs("main"); strings.Contains(log, "nvidia0") || strings.Contains(log, "nvidiactl") {
			t.Errorf("%s: it has device files: %q", name, log)
		}
	}
}

// Nor does it get a pod with a request more than that.
func TestForgedPodsGetNoMore(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	victim := e.create(one("victim", gibs(4), hold))
	victim.running()
	g := e.grantOf(victim, "main")
	pods := map[string]*pod{}
	for name, edit := range forgeries(e.node.env["NODE_NAME"], g.ID, g.Fragments[0].GPU) {
		pods[name] = e.create(forgery(name, gibs(2), "unset CUDA_VISIBLE_DEVICES; gpuload --json; gpuload --json --alloc 3GiB; gpuload --json --gpu 1; ls /dev | grep -c '^nvidia[0-9]'", edit))
	}
	for name, p := range pods {
		p.phase(corev1.PodSucceeded)
		lines := p.loads("main", 3)
		if l := lines[0]; l.Total == nil || *l.Total != 2*gib {
			t.Errorf("%s: it sees %v", name, l)
		}
		if lines[1].Error == nil || lines[2].Error == nil {
			t.Errorf("%s: it gets past its cap or to another GPU: %v", name, lines)
		}
		if log := p.logs("main"); !strings.HasSuffix(log, "\n1\n") {
			t.Errorf("%s: it has other GPUs' device files: %q", name, log)
		}
	}
}

// A forged note of a grant is refused in words.
func TestForgedNoteIsRefused(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	s := one("noted", gibs(2), hold)
	s.annotations = map[string]string{"kerf.dev/grant": `{"version":1,"grant":"k-0123456789"}`}
	e.create(s).event("FailedCreatePodSandBox", "kerf.dev/grant")
}
