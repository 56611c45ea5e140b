// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	claimController = "kerf-claim-controller"
	bindingReady    = draDriver + "/ready"
	unavailable     = draDriver + "/mig-unavailable"
)

// startClaimController installs the controller of claims. Afterwards the node publishes binding conditions.
func (e *testCase) startClaimController() {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(e.node.env["REPO"], "deploy/variants/dra-binding.yaml"))
	if err != nil {
		e.Fatal(err)
	}
	made := forTests(text)
	e.Cleanup(func() { e.kubectl(made, "delete", "--ignore-not-found", "-f", "-") })
	if err := e.apply(made); err != nil {
		e.Fatal(err)
	}
	e.writeRules(e.changedRules(draRules, draRules+"    bindingConditions: true\n"))
	eventually(e, "the claim controller", func() error {
		d, err := e.client.AppsV1().Deployments(kerfNamespace).Get(background(), claimController, metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != 1 {
			err = fmt.Errorf("%d pods are ready", d.Status.ReadyReplicas)
		}
		return err
	})
	eventually(e, "MIG instances with binding conditions", func() error {
		devices, err := e.devicesOfNode()
		n := 0
		for _, d := range devices {
			if slices.Equal(d.BindingConditions, []string{bindingReady}) && strings.Contains(d.Name, "-mig-") {
				n++
			}
		}
		if err != nil || n < 16 {
			return errors.Join(fmt.Errorf("%d of %d devices have them", n, len(devices)), err)
		}
		return nil
	})
}

// claimOf is the claim of a pod in the API server.
func (p *pod) claimOf() *resourceapi.ResourceClaim {
	p.e.Helper()
	o := p.get()
	if len(o.Status.ResourceClaimStatuses) != 1 || o.Status.ResourceClaimStatuses[0].ResourceClaimName == nil {
		p.e.Fatalf("%s has %d claims", p.name, len(o.Status.ResourceClaimStatuses))
	}
	c, err := p.e.client.ResourceV1().ResourceClaims(p.namespace).Get(background(),
		*o.Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
	if err != nil {
		p.e.Fatal(err)
	}
	return c
}

// boundAfterItsInstance checks that a running pod has an instance of the GPU, and was bound once that existed.
func (p *pod) boundAfterItsInstance(gpu string) {
	p.e.Helper()
	o := p.running()
	if g := p.e.grantOf(p, "main"); g.Level != "hardware" || len(g.Shares) != 1 || g.Shares[0].GPU != gpu {
		p.e.Errorf("%s has grant %+v, want GPU %s", p.name, g, gpu)
	}
	c := p.claimOf()
	var ready *metav1.Condition
	for _, d := range c.Status.Devices {
		ready = meta.FindStatusCondition(d.Conditions, bindingReady)
	}
	if ready == nil || ready.Status != metav1.ConditionTrue {
		p.e.Fatalf("the claim of %s says %+v", p.name, c.Status.Devices)
	}
	for _, s := range o.Status.Conditions {
		if s.Type == corev1.PodScheduled && s.LastTransitionTime.Before(&ready.LastTransitionTime) {
			p.e.Errorf("%s was bound at %v, and its instance exists since %v", p.name, s.LastTransitionTime,
				ready.LastTransitionTime)
		}
	}
}

// unavailableGPU is an error unless exactly the MIG instances of one GPU have the taint; of none for an empty UUID.
func (e *testCase) unavailableGPU(gpu string) error {
	devices, err := e.devicesOfNode()
	if err != nil {
		return err
	}
	for _, d := range devices {
		if !strings.Contains(d.Name, "-mig-") {
			continue
		}
		tainted := slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == unavailable })
		if want := gpu != "" && strings.HasPrefix(d.Name, strings.ToLower(gpu)); tainted != want {
			return fmt.Errorf("device %s has taints %+v", d.Name, d.Taints)
		}
	}
	return nil
}

// A pool opts in to binding conditions. A pod is bound once its MIG instance exists. If a GPU cannot create an
// instance, it gets a taint, and the pod goes to another GPU. A restart of the agent disturbs nothing, and the next pod
// gets an instance of the first GPU. At the end, no claim is assigned to the node.
func TestDRABinding(t *testing.T) {
	e := beginWithDRA(t)
	e.migFollowsClaims()
	e.startClaimController()
	gpus := e.node.gpus(t)
	const run = "exec gpuload --json --alloc 1GiB --hold 1h"
	e.templateOf("half", "mig.kerf.dev", "device.attributes['gpu.kerf.dev'].profile == '3g.40gb'", "")
	first := e.create(byClaim("first", "half", run))
	first.running()
	first.boundAfterItsInstance(gpus[0].UUID)

	t.Cleanup(func() { e.node.set(t, "gpu=0 error.gi-create=none") })
	e.node.set(t, "gpu=0 error.gi-create=insufficient-resources")
	second := e.create(byClaim("second", "half", run))
	eventually(e, "the taint of the first GPU", func() error { return e.unavailableGPU(gpus[0].UUID) })
	second.running()
	second.boundAfterItsInstance(gpus[1].UUID)
	e.node.set(t, "gpu=0 error.gi-create=none")

	before := e.agentInstances()
	e.signalAgent("KILL")
	eventually(e, "the agent's next start", func() error {
		if now := e.agentInstances(); now == before {
			return fmt.Errorf("it is still %s", now)
		}
		return e.agentReady()
	})
	eventually(e, "no taint", func() error { return e.unavailableGPU("") })
	for _, p := range []*pod{first, second} {
		if o := p.running(); o.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s was disturbed: %s", p.name, describe(o))
		}
	}
	third := e.create(byClaim("third", "half", run))
	third.running()
	third.boundAfterItsInstance(gpus[0].UUID)
	for _, p := range []*pod{first, second, third} {
		p.delete()
	}
	for i, gpu := range gpus[:2] { // which leave MIG mode for a share
		name := fmt.Sprint("share", i)
		e.template(name, "4Gi", gpu.UUID)
		e.create(byClaim(name, name, hold)).running()
	}
	eventually(e, "the end of all assignments", func() error {
		r := e.kubectl("", "get", "gpunode", e.node.env["NODE_NAME"], "-o", "jsonpath={.spec.assignedClaims[*].name}")
		if r.err != nil || r.out != "" {
			return fmt.Errorf("the GPUNode says %v", r)
		}
		return nil
	})
}
