// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// forgery is a pod by which a tenant tries to get at GPUs that are not his. A container that a busy runtime has made
// without its grant is made again.
func forgery(name string, limits map[string]string, run string, edit func(*podSpec)) podSpec {
	s := one("forged-"+dnsName(name), limits, run)
	s.restart = corev1.RestartPolicyAlways
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
	all := env(map[string]string{"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all",
		"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"})
	return map[string]func(*podSpec){
		"all by environment":  all,
		"uuid by environment": env(map[string]string{"NVIDIA_VISIBLE_DEVICES": uuid, "CUDA_VISIBLE_DEVICES": uuid}),
		"all by image": func(s *podSpec) {
			s.runtimeClass, s.containers[0].image = "nvidia", "kerf.test/greedy:1"
		},
		"kerf's environment": env(map[string]string{"KERF_GRANT": grant, "KERF_GPUS": uuid, "KERF_NEAR": "numa0:1"}),
		"cdi annotations": func(s *podSpec) {
			s.annotations = map[string]string{
				"cdi.k8s.io/vendor1_class": "nvidia.com/gpu=all", "cdi.k8s.io/kerf": "kerf.dev/gpu=" + uuid,
				"cdi.k8s.io/vendor2_class": "kerf.dev/guard=armed,kerf.dev/ask=gpu-memory-gib:70",
			}
		},
		"node and scheduler name": func(s *podSpec) {
			all(s)
			s.edit = func(p *corev1.Pod) { p.Spec.NodeName, p.Spec.SchedulerName = nodeName, schedulerName }
		},
	}
}

// attempts is a program that tries to get at a GPU, says what came of it, and goes on trying.
const attempts = "ls /dev; gpuload --json; gpuload --json --alloc 1GiB; while :; do gpuload --alloc 1GiB --hold 1h; " +
	"sleep 1; done >/dev/null 2>&1"

// wantDriver compares what the driver has of a container that runs with its grant: without one it holds no limit for it
// and knows no process of it; with one of that many bytes, that limit on the grant's GPU, next to nothing on the
// others, and processes on that GPU alone, within it.
func (e *testCase) wantDriver(p *pod, memory uint64) {
	e.Helper()
	id, all := p.id("main"), e.grantsOf(p)
	own := ""
	if memory > 0 {
		if len(all) != 1 || all[0].Memory != memory || len(all[0].Shares) != 1 {
			e.Fatalf("%s: %d bytes were requested, and the agent holds %+v", p.name, memory, all)
		}
		own = all[0].Shares[0].GPU
	} else if len(all) > 0 {
		e.Errorf("%s requests nothing, and the agent holds %+v", p.name, all)
	}
	caps := e.node.capsOf(e.T, id)
	for gpu, limit := range caps {
		if memory == 0 || gpu == own && limit != memory || gpu != own && limit > least {
			e.Errorf("%s: the driver holds a limit of %d bytes on %s; its grant is %d on %q", p.name, limit, gpu,
				memory, own)
		}
	}
	if _, capped := caps[own]; memory > 0 && !capped {
		e.Errorf("%s: the driver holds no limit on %s: %v", p.name, own, caps)
	}
	for _, s := range p.inDriver("main") {
		if s.GPU != own || s.Bytes > memory {
			e.Errorf("%s: the driver knows of it %+v; its grant is %d on %q", p.name, s, memory, own)
		}
	}
}

// victim is a pod that uses what it has, and what the driver has of it.
type victim struct {
	*pod
	caps string
	uses []simProcess
}

func (e *testCase) victim(s podSpec) victim {
	e.Helper()
	p := e.create(s)
	p.running()
	if l := p.loads("main", 1)[0]; l.Error != nil {
		e.Fatalf("the victim: %v", l)
	}
	return victim{p, fmt.Sprint(p.caps("main")), p.inDriver("main")}
}

// feelsNothing compares it with before.
func (v victim) feelsNothing() {
	v.e.Helper()
	if now := fmt.Sprint(v.pod.caps("main")); now != v.caps {
		v.e.Errorf("the victim's limits are %s, were %s", now, v.caps)
	}
	if now := v.inDriver("main"); len(now) != 1 || !slices.Equal(now, v.uses) {
		v.e.Errorf("the driver knows %+v of the victim, and knew %+v", now, v.uses)
	}
	if s := v.status("main"); s.State.Running == nil || s.RestartCount != 0 {
		v.e.Errorf("the victim: %+v", s)
	}
}

// Nothing that a tenant can write in a pod without a request gets it a GPU: it finds none, and the driver has nothing
// of it.
func TestForgedPodsGetNoGPU(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	v := e.victim(one("victim", gibs(4), "exec gpuload --json --alloc 3GiB --hold 1h"))
	g := e.grantOf(v.pod, "main")
	pods := map[string]*pod{}
	for name, edit := range forgeries(e.node.env["NODE_NAME"], g.ID, g.Shares[0].GPU) {
		pods[name] = e.create(forgery(name, nil, attempts, edit))
	}
	for name, p := range pods {
		p.running()
		for _, l := range p.loads("main", 2) {
			if l.Error == nil || l.Total != nil {
				t.Errorf("%s: it sees a GPU: %v", name, l)
			}
		}
		if log := p.logs("main"); strings.Contains(log, "nvidia0") || strings.Contains(log, "nvidiactl") {
			t.Errorf("%s: it has device files: %q", name, log)
		}
	}
	for range 3 { // they go on trying
		for _, p := range pods {
			e.wantDriver(p, 0)
		}
	}
	v.feelsNothing()
}

// Nor does it get a pod with a request more than that.
func TestForgedPodsGetNoMore(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	v := e.victim(one("victim", gibs(4), "exec gpuload --json --alloc 3GiB --hold 1h"))
	g := e.grantOf(v.pod, "main")
	pods := map[string]*pod{}
	for name, edit := range forgeries(e.node.env["NODE_NAME"], g.ID, g.Shares[0].GPU) {
		pods[name] = e.create(forgery(name, gibs(2),
			"unset CUDA_VISIBLE_DEVICES; gpuload --json; gpuload --json --alloc 3GiB; gpuload --json --gpu 1; "+
				"ls /dev | grep -c '^nvidia[0-9]'; exec gpuload --json --alloc 1GiB --hold 1h", edit))
	}
	for name, p := range pods {
		p.running()
		lines := p.loads("main", 4)
		if l := lines[0]; l.Total == nil || *l.Total != 2*gib {
			t.Errorf("%s: it sees %v", name, l)
		}
		if lines[1].Error == nil || lines[2].Error == nil {
			t.Errorf("%s: it gets past its cap or to another GPU: %v", name, lines)
		}
		if log := p.logs("main"); !strings.Contains(log, "\n1\n") {
			t.Errorf("%s: it has other GPUs' device files: %q", name, log)
		}
		e.wantDriver(p, 2*gib)
		if its := p.inDriver("main"); lines[3].Error != nil || len(its) != 1 {
			t.Errorf("%s: with half of its share it says %v, and the driver knows %+v", name, lines[3], its)
		}
	}
	v.feelsNothing()
}

// placementPolicy is the chart's file that lets none but the scheduler write where a pod lies.
const placementPolicy = "agent/40-policy-placement.yaml"

// withoutPlacementPolicy takes that policy off until the test ends.
func (e *testCase) withoutPlacementPolicy() {
	e.Helper()
	text := e.chartFile("default", placementPolicy)
	try := func() error {
		s := one("tried", nil, hold)
		s.annotations = map[string]string{"scheduling.kerf.dev/main": "GPU-0"}
		_, err := e.client.CoreV1().Pods(e.namespace).Create(background(), s.object(e.namespace),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	e.Cleanup(func() {
		if err := e.apply(text); err != nil {
			e.Error(err)
		}
		eventually(e, "the policy of placements", func() error {
			if err := try(); err == nil || !strings.Contains(err.Error(), "only the scheduler may write annotations") {
				return fmt.Errorf("a forged placement: %w", errors.Join(err))
			}
			return nil
		})
	})
	if r := e.kubectl(text, "delete", "-f", "-"); r.err != nil {
		e.Fatal(r)
	}
	eventually(e, "the end of the policy of placements", try)
}

// If nothing protects the scheduler's annotation, a user who forges it chooses among the GPUs that have enough free
// memory. kerf.dev/gpu-uuid allows that anyway. The user gains nothing else: no GPU without a request, no more than the
// request, no GPU that is full, and no neighbor's GPU.
func TestForgedPlacement(t *testing.T) {
	e := beginWithAgent(t)
	const gpu = 3
	v := e.victim(e.pinned("victim", gpu, 70, "exec gpuload --json --alloc 60GiB --hold 1h"))
	gpus := e.node.gpus(t)
	full, free := gpus[gpu].UUID, gpus[6].UUID
	e.withoutPlacementPolicy()
	forged := map[string]string{
		"the victim's": full, "a free one": free, "two": free + "," + full, "an instance": full + "/7g.80gb@0",
		"an amount": full + "=70GiB",
	}
	none, some := map[string]*pod{}, map[string]*pod{}
	for name, value := range forged {
		edit := func(s *podSpec) { s.annotations = map[string]string{"scheduling.kerf.dev/main": value} }
		if value == full || value == free {
			none[name] = e.create(forgery(name+" without", nil, attempts, edit))
		}
		some[name] = e.create(forgery(name, gibs(12),
			"gpuload --json --alloc 13GiB; exec gpuload --json --alloc 11GiB --hold 1h", edit))
	}
	for name, p := range none {
		p.running()
		for _, l := range p.loads("main", 2) {
			if l.Error == nil || l.Total != nil {
				t.Errorf("%s: without a request it sees a GPU: %v", name, l)
			}
		}
		e.wantDriver(p, 0)
	}
	for name, p := range some {
		p.running()
		if l := p.loads("main", 2); l[0].Error == nil || l[1].Error != nil || *l[1].Total != 12*gib {
			t.Errorf("%s: 13 GiB and 11 GiB of its 12: %v", name, l)
		}
		e.wantDriver(p, 12*gib)
		on := e.wantHeld(p, "main", share(12*gib, 0)).Shares[0].GPU
		if on == full || name == "a free one" && on != free {
			t.Errorf("%s: it lies on %s; %s is full, and %s has room", name, on, full, free)
		}
	}
	v.feelsNothing()
}

// A forged note of a grant is refused in words.
func TestForgedNoteIsRefused(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	s := one("noted", gibs(2), hold)
	s.annotations = map[string]string{"kerf.dev/grant": `{"version":1,"grant":"k-0123456789"}`}
	e.create(s).event("FailedCreatePodSandBox", "kerf.dev/grant")
}

// A mount that asks NVIDIA's runtime for GPUs, which hears it before the environment, lets no pod with a share in.
// Where the namespace is left out of that, and in a pod without a share, no container starts.
func TestMountThatAsksForGPUs(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	const at, written = "/var/run/nvidia-container-devices/0", "/var/run/x/../nvidia-container-devices/0"
	pods := map[string]podSpec{}
	for name, limits := range map[string]map[string]string{"share": gibs(1), "none": nil} {
		s := mounting("/dev/null", limits)
		s.name, s.runtimeClass = "mounts-"+name, "nvidia"
		mount := s.edit
		s.edit = func(p *corev1.Pod) {
			mount(p)
			p.Spec.Containers[0].VolumeMounts[0].MountPath = written
		}
		pods[name] = s
	}
	if said := e.refused(pods["share"]); !strings.Contains(said, `mounts at "`+written+
		`"; write the path without ".."`) {
		t.Errorf("refused with %q", said)
	}
	if r := e.kubectl("", "label", "namespace", e.namespace, "kerf.dev/allow-host-paths=true"); r.err != nil {
		t.Fatal(r)
	}
	for _, s := range pods {
		eventually(e, s.name+" to be let in", func() error { // the policies see the label soon
			_, err := e.admitted(s)
			return err
		})
		p := e.create(s)
		p.event("Failed", at, "asks NVIDIA's runtime for GPUs that the container was not given",
			"leave it out of the pod")
		if o := p.get(); slices.ContainsFunc(containerStatuses(o),
			func(s corev1.ContainerStatus) bool { return s.State.Running != nil }) {
			t.Errorf("it runs: %s", describe(o))
		}
	}
}
