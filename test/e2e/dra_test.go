// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	draDriver = "gpu.kerf.dev"
	draRules  = "    frontend: dra\n"
	// greedy allocates more than any share of these tests, keeps what it got, and runs on.
	greedy = "gpuload --json --alloc 31GiB; " + hold
)

// beginWithDRA installs what pools with the DRA front end need, and changes the pool to it. Afterwards the node has the
// device plugin again.
func beginWithDRA(t *testing.T) *testCase {
	t.Helper()
	e := beginWithAgent(t)
	before := e.readRules()
	for _, file := range []string{"dra.yaml", "dra-agent.yaml"} {
		text, err := os.ReadFile(filepath.Join(e.node.env["REPO"], "deploy/variants", file))
		if err != nil {
			t.Fatal(err)
		}
		made := forTests(text)
		if file == "dra.yaml" {
			t.Cleanup(func() { e.kubectl(made, "delete", "--ignore-not-found", "-f", "-") })
		}
		if err := e.apply(made); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, p := range e.pods { // while kubelet can unprepare their claims
			p.startDeletion()
		}
		for _, p := range e.pods {
			if err := poll("end of "+p.name, p.goneError); err != nil {
				t.Error(err)
			}
		}
		eventually(e, "the end of all grants by claims", func() error {
			s, err := e.status()
			if err == nil && len(s.Grants) != 0 {
				err = fmt.Errorf("%d grants", len(s.Grants))
			}
			return err
		})
		e.writeRules(before)
		e.dra = false
		eventually(e, "the device plugin", func() error {
			if _, usable, err := e.capacity("kerf.dev/gpu-memory-gib"); err != nil || usable == 0 {
				return errors.Join(errors.New("kubelet offers no kerf.dev/gpu-memory-gib"), err)
			}
			return nil
		})
		if err := e.install(); err != nil {
			t.Error(err)
		}
		e.waitForAgent()
	})
	e.writeRules(e.changedRules("    mode: auto\n", "    mode: auto\n"+draRules))
	e.waitForSlices(8)
	e.dra = true
	return e
}

// devicesOfNode are the devices in the ResourceSlices of the node, without the one for admin access.
func (e *testCase) devicesOfNode() (out []resourceapi.Device, err error) {
	list, err := e.client.ResourceV1().ResourceSlices().List(background(), metav1.ListOptions{
		FieldSelector: "spec.driver=" + draDriver + ",spec.nodeName=" + e.node.env["NODE_NAME"]})
	if err != nil {
		return nil, err
	}
	for _, s := range list.Items {
		out = append(out, s.Spec.Devices...)
	}
	return slices.DeleteFunc(out, func(d resourceapi.Device) bool { return d.Name == "monitor" }), nil
}

// waitForSlices waits until so many GPUs are published, each by itself and for shares, and none is left to the device
// plugin.
func (e *testCase) waitForSlices(gpus int) {
	e.Helper()
	eventually(e, "ResourceSlices of the node", func() error {
		if err := e.agentReady(); err != nil {
			return err
		}
		devices, err := e.devicesOfNode()
		if err != nil || len(devices) != 2*gpus {
			return errors.Join(fmt.Errorf("%d devices, want %d", len(devices), 2*gpus), err)
		}
		for _, resource := range []string{"kerf.dev/gpu-memory-gib", "kerf.dev/gpu-percent", "kerf.dev/gpu"} {
			if _, usable, err := e.capacity(resource); err != nil || usable != 0 {
				return errors.Join(fmt.Errorf("kubelet still offers %d of %s", usable, resource), err)
			}
		}
		return nil
	})
}

// template makes a ResourceClaimTemplate of one share of a GPU; of any GPU without a UUID.
func (e *testCase) template(name, memory, gpu string) {
	e.Helper()
	expression := ""
	if gpu != "" {
		expression = "device.attributes['gpu.kerf.dev'].uuid == '" + gpu + "'"
	}
	e.templateOf(name, "share.kerf.dev", expression, memory)
}

// templateOf makes a ResourceClaimTemplate of one device of a class. The CEL expression selects it, and memory is its
// capacity. Both may be empty.
func (e *testCase) templateOf(name, class, expression, memory string) {
	e.Helper()
	request := resourceapi.ExactDeviceRequest{DeviceClassName: class}
	if expression != "" {
		request.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	}
	if memory != "" {
		request.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
			"memory": resource.MustParse(memory)}}
	}
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{
			Devices: resourceapi.DeviceClaim{
				Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &request}}}}}}
	if _, err := e.client.ResourceV1().ResourceClaimTemplates(e.namespace).Create(background(), template,
		metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
}

// byClaim is a pod of one container, with a claim of a template.
func byClaim(name, template, run string) podSpec {
	spec := one(name, nil, run)
	spec.edit = func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		}
	}
	return spec
}

// unplaced waits until the scheduler has said that no node has what the pod requests.
func (p *pod) unplaced() {
	p.e.Helper()
	p.until("no node has the device", func(o *corev1.Pod) error {
		if o.Spec.NodeName != "" {
			return final("it was placed on %s", o.Spec.NodeName)
		}
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return nil
			}
		}
		return fmt.Errorf("%s", describe(o))
	})
}

// claimStatus waits until the claim of the pod says that its device is in use, and returns what it says.
func (p *pod) claimStatus() (said struct{ Level, Cap, GPU string }) {
	p.e.Helper()
	eventually(p.e, "status of the claim of "+p.name, func() error {
		o := p.get()
		if len(o.Status.ResourceClaimStatuses) != 1 || o.Status.ResourceClaimStatuses[0].ResourceClaimName == nil {
			return final("%d claims", len(o.Status.ResourceClaimStatuses))
		}
		c, err := p.e.client.ResourceV1().ResourceClaims(p.namespace).Get(background(),
			*o.Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d := c.Status.Devices; len(d) != 1 || d[0].Data == nil || len(d[0].Conditions) != 1 ||
			d[0].Conditions[0].Reason != "Active" {
			return fmt.Errorf("%+v", d)
		}
		return json.Unmarshal(c.Status.Devices[0].Data.Raw, &said)
	})
	return said
}

// Three pods want 30 GiB each of one GPU with 80 GB, by ResourceClaim and with the stock scheduler. Two run, each under
// its cap. The third waits, and runs once one of them has ended. A restart of the agent disturbs none, and kubelet may
// ask again for what is prepared.
func TestDRAShares(t *testing.T) {
	e := beginWithDRA(t)
	gpu := e.node.gpus(t)[0]
	e.template("third", "30Gi", gpu.UUID)
	first, second := e.create(byClaim("first", "third", greedy)), e.create(byClaim("second", "third", greedy))
	first.running()
	second.running()
	third := e.create(byClaim("third", "third", greedy))
	third.unplaced()
	for _, p := range []*pod{first, second} {
		g := e.wantHeld(p, "main", share(30*gib, 0))
		if g.Shares[0].GPU != gpu.UUID {
			t.Errorf("%s has GPU %s, want %s", p.name, g.Shares[0].GPU, gpu.UUID)
		}
		if l := p.loads("main", 1)[0]; l.Error == nil || l.Total == nil || *l.Total != 30*gib {
			t.Errorf("31 GiB in %s, which has 30: %v", p.name, l)
		}
		if s := p.claimStatus(); s.Level != "driver" || s.Cap != "30GiB" || s.GPU != gpu.UUID {
			t.Errorf("the claim of %s says %+v", p.name, s)
		}
	}
	e.killAgentOfDRA()
	e.node.restart(t, "kubelet")
	eventually(e, "exec by kubelet", func() error { // it serves none until it has started
		_, _, err := first.exec("main", "/bin/sh", "-c", "true")
		return err
	})
	for _, p := range []*pod{first, second} {
		if o := p.running(); o.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s was restarted: %s", p.name, describe(o))
		}
		e.wantHeld(p, "main", share(30*gib, 0))
	}
	first.startDeletion()
	third.running()
	e.wantHeld(third, "main", share(30*gib, 0))
	first.released()
}

// killAgentOfDRA ends the agent's process, and waits until the next has published its GPUs.
func (e *testCase) killAgentOfDRA() {
	e.Helper()
	before := e.agentInstances()
	e.signalAgent("KILL")
	eventually(e, "the agent's next start", func() error {
		if now := e.agentInstances(); now == before {
			return fmt.Errorf("it is still %s", now)
		}
		return nil
	})
	e.waitForSlices(8)
}

// A GPU that pods use by one front end keeps it, and names them. It changes once they have ended.
func TestDRAPending(t *testing.T) {
	e := beginWithDRA(t)
	gpu := e.node.gpus(t)[0]
	e.template("small", "10Gi", gpu.UUID)
	user := e.create(byClaim("user", "small", hold))
	user.running()
	e.writeRules(e.changedRules(draRules, ""))
	pending := func(want bool) {
		t.Helper()
		eventually(e, fmt.Sprintf("pending %t", want), func() error {
			devices, err := e.devicesOfNode()
			if err != nil || len(devices) != map[bool]int{true: 2, false: 0}[want] {
				return errors.Join(fmt.Errorf("%d devices are published", len(devices)), err)
			}
			r := e.kubectl("", "get", "gpunode", e.node.env["NODE_NAME"], "-o", "jsonpath={.status.config.pending}")
			if said := strings.Contains(r.out, "frontend dra -") &&
				strings.Contains(r.out, e.namespace+"/user"); r.err != nil || said != want {
				return fmt.Errorf("the GPUNode says %v", r)
			}
			return nil
		})
	}
	pending(true)
	eventually(e, "the 7 idle GPUs as an offer of the device plugin", func() error {
		_, usable, err := e.capacity("kerf.dev/gpu")
		if err != nil || usable != 7 {
			return errors.Join(fmt.Errorf("it offers %d", usable), err)
		}
		return nil
	})
	user.delete()
	pending(false)
}

// The manifests of docs/use/dra.md work as they stand, with another image and program.
func TestDRADocuments(t *testing.T) {
	e := beginWithDRA(t)
	text, err := os.ReadFile(filepath.Join(e.node.env["REPO"], "deploy/dra/share.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := strings.NewReplacer("image: registry.example/train:v1",
		"image: "+loadImage+"\n    command: [sleep, \"3600\"]").Replace(string(text))
	if r := e.kubectl(all, "apply", "-n", e.namespace, "-f", "-"); r.err != nil {
		t.Fatal(r)
	}
	train := &pod{e: e, name: "train", namespace: e.namespace}
	e.pods = append(e.pods, train)
	train.running()
	e.wantHeld(train, "main", share(10*gib, 0))
	if text, err = os.ReadFile(filepath.Join(e.node.env["REPO"], "deploy/dra/templates.yaml")); err != nil {
		t.Fatal(err)
	}
	if r := e.kubectl(string(text), "apply", "-n", e.namespace, "-f", "-"); r.err != nil {
		t.Fatal(r)
	}
	var pods []*pod
	for name, w := range map[string]want{
		"gpu-10gib-25percent": share(10*gib, 25), "gpu-half": share(39*gib, 50),
		"gpu-driver-or-whole": share(10*gib, 0),
		"gpu-notebook":        share(8*gib, 0), "gpu-inference": share(24*gib, 50),
	} {
		p := e.create(byClaim(name, name, hold))
		p.running()
		e.wantHeld(p, "main", w)
		pods = append(pods, p)
	}
	two := e.create(byClaim("two", "gpu-two-nvlink", hold))
	two.running()
	if g := e.grantOf(two, "main"); g.Level != "exclusive" || len(g.Shares) != 2 {
		t.Errorf("two whole GPUs: %+v", g)
	}
	whole := e.grantOf(two, "main")
	for _, p := range append(pods, train) {
		gpu := e.grantOf(p, "main").Shares[0].GPU
		if slices.ContainsFunc(whole.Shares, func(f fragment) bool { return f.GPU == gpu }) {
			t.Errorf("%s has a share of GPU %s, which is given whole", p.name, gpu)
		}
	}
}
