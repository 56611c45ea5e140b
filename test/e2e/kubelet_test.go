// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// podResources asks kubelet for the devices that it has given to the containers of a pod: by container and
// resource, the ids.
func (e *testCase) podResources(p *pod) map[string]map[string][]string {
	e.Helper()
	conn, err := grpc.NewClient("unix://"+e.node.path("/var/lib/kubelet/pod-resources/kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		e.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(background(), commandTime)
	defer cancel()
	answer, err := podresources.NewPodResourcesListerClient(conn).Get(ctx, &podresources.GetPodResourcesRequest{PodNamespace: p.namespace, PodName: p.name})
	if err != nil {
		e.Fatalf("podresources of %s: %v", p.name, err)
	}
	all := map[string]map[string][]string{}
	for _, c := range answer.GetPodResources().GetContainers() {
		all[c.GetName()] = map[string][]string{}
		for _, d := range c.GetDevices() {
			all[c.GetName()][d.GetResourceName()] = append(all[c.GetName()][d.GetResourceName()], d.GetDeviceIds()...)
		}
	}
	return all
}

// kubelet tells monitoring agents which container holds how many of which units, each of them once.
func TestPodResources(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	p := e.create(podSpec{name: "devices", containers: []container{
		{name: "memory", run: hold, limits: gibs(3)},
		{name: "compute", run: hold, limits: percent(20)},
		{name: "none", run: hold},
	}})
	p.running()
	got := e.podResources(p)
	want := map[string]map[string]int{
		"memory": {"kerf.dev/gpu-memory-gib": 3}, "compute": {"kerf.dev/gpu-percent": 20}, "none": {},
	}
	seen := map[string]bool{}
	for name, resources := range want {
		if len(got[name]) != len(resources) {
			t.Errorf("%s holds %v, want %v", name, got[name], resources)
		}
		for resource, n := range resources {
			if len(got[name][resource]) != n {
				t.Errorf("%s holds %v of %s, want %d", name, got[name][resource], resource, n)
			}
			for _, id := range got[name][resource] {
				if key := fmt.Sprint(resource, id); seen[key] {
					t.Errorf("%s of %s is held twice", id, resource)
				} else {
					seen[key] = true
				}
			}
		}
	}
}
