// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// askKubelet asks kubelet's socket for pod resources. To list them costs a pod that is admitted meanwhile its ids: that
// is for tests that run alone.
func (e *testCase) askKubelet(ask func(context.Context, podresources.PodResourcesListerClient) error) {
	e.Helper()
	conn, err := grpc.NewClient("unix://"+e.node.path("/var/lib/kubelet/pod-resources/kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		e.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(background(), commandTime)
	defer cancel()
	if err := ask(ctx, podresources.NewPodResourcesListerClient(conn)); err != nil {
		e.Fatalf("pod resources of kubelet: %v", err)
	}
}

// units are ids of Kerf's resources, sorted, by container and resource.
type units map[string]map[string][]string

// unitsOf reads an answer about one pod. Ids of shares have no NUMA node; those of whole GPUs have one where the
// machine tells it.
func (e *testCase) unitsOf(p *podresources.PodResources) units {
	e.Helper()
	all := units{}
	for _, c := range p.GetContainers() {
		all[c.GetName()] = map[string][]string{}
		for _, d := range c.GetDevices() {
			if len(d.GetTopology().GetNodes()) > 0 && d.GetResourceName() != "kerf.dev/gpu" {
				e.Errorf("%s of %s in %s has the NUMA nodes %v", d.GetDeviceIds(), d.GetResourceName(), p.GetName(),
					d.GetTopology().GetNodes())
			}
			all[c.GetName()][d.GetResourceName()] = append(all[c.GetName()][d.GetResourceName()], d.GetDeviceIds()...)
		}
		for _, ids := range all[c.GetName()] {
			slices.Sort(ids)
		}
	}
	return all
}

// podResources asks kubelet for the units of one pod.
func (e *testCase) podResources(p *pod) units {
	e.Helper()
	var answer *podresources.GetPodResourcesResponse
	e.askKubelet(func(ctx context.Context, c podresources.PodResourcesListerClient) (err error) {
		answer, err = c.Get(ctx, &podresources.GetPodResourcesRequest{PodNamespace: p.namespace, PodName: p.name})
		return err
	})
	return e.unitsOf(answer.GetPodResources())
}

// Kubelet reports to monitoring agents which container has which units, each of them once, for one pod and for all. The
// capacity stays the same, whichever containers have the units.
func TestPodResources(t *testing.T) {
	e := beginWithAgent(t)
	full := e.allOffers()
	parts := e.create(podSpec{name: "parts", containers: []container{
		{name: "memory", run: hold, limits: gibs(3)},
		{name: "compute", run: hold, limits: percent(20)},
		{name: "none", run: hold},
	}})
	whole := e.create(podSpec{
		name:       "whole",
		init:       []container{{name: "side", run: hold, limits: wholeGPUs(1), sidecar: true}},
		containers: []container{{run: hold, limits: wholeGPUs(2)}},
	})
	pods := map[*pod]map[string]map[string]int{
		parts: {"memory": {"kerf.dev/gpu-memory-gib": 3}, "compute": {"kerf.dev/gpu-percent": 20}, "none": {}},
		whole: {"side": {"kerf.dev/gpu": 1}, "main": {"kerf.dev/gpu": 2}},
	}
	for p := range pods {
		p.running()
	}
	var list *podresources.ListPodResourcesResponse
	var there *podresources.AllocatableResourcesResponse
	e.askKubelet(func(ctx context.Context, c podresources.PodResourcesListerClient) (err error) {
		if list, err = c.List(ctx, &podresources.ListPodResourcesRequest{}); err == nil {
			there, err = c.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
		}
		return err
	})
	listed := map[string]units{}
	for _, p := range list.GetPodResources() {
		if p.GetNamespace() == e.namespace {
			listed[p.GetName()] = e.unitsOf(p)
		}
	}
	known := map[string]bool{} // "resource id"
	for _, d := range there.GetDevices() {
		for _, id := range d.GetDeviceIds() {
			known[d.GetResourceName()+" "+id] = true
		}
	}
	counted, holder := map[string]int64{}, map[string]string{}
	for u := range known {
		resource, _, _ := strings.Cut(u, " ")
		counted[resource]++
	}
	for name, n := range full {
		if counted["kerf.dev/"+name] != n[1] {
			t.Errorf("kubelet tells of %d units of %s, and the node's allocatable is %d", counted["kerf.dev/"+name],
				name, n[1])
		}
	}
	for p, want := range pods {
		got := e.podResources(p)
		if diff := cmp.Diff(got, listed[p.name]); diff != "" {
			t.Errorf("%s (-asked by itself +in the list):\n%s", p.name, diff)
		}
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(maps.Keys(want))) {
			t.Errorf("%s: kubelet tells of the containers %q", p.name, names)
		}
		for container, resources := range want {
			have := map[string]int{}
			for resource, ids := range got[container] {
				have[resource] = len(ids)
				for _, id := range ids {
					unit, me := resource+" "+id, p.name+"/"+container
					if other := holder[unit]; other != "" || !known[unit] {
						t.Errorf("%s of %s is also of %q, or there is no such unit (%t)", unit, me, other, known[unit])
					}
					holder[unit] = me
				}
			}
			if diff := cmp.Diff(resources, have); diff != "" {
				t.Errorf("%s/%s holds (-want +got):\n%s", p.name, container, diff)
			}
		}
	}
	if now := e.offers(); fmt.Sprint(now) != fmt.Sprint(full) {
		t.Errorf("the node offers %v, and offered %v before the pods came", now, full)
	}
	for p := range pods {
		p.delete()
		p.released()
	}
	e.offersBecome(full)
}

// kubeletCounts is one of kubelet's own counters, 0 where it has not counted yet.
func (e *testCase) kubeletCounts(name string) int {
	e.Helper()
	text, err := e.client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes", e.node.env["NODE_NAME"],
		"proxy/metrics").DoRaw(background())
	if err != nil {
		e.Fatalf("metrics of kubelet: %v", err)
	}
	sum := 0
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+"{"); ok {
			_, value, _ := strings.Cut(rest, "} ")
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				e.Fatalf("metrics of kubelet: %q: %v", line, err)
			}
			sum += int(n)
		}
	}
	return sum
}

// While a GPU is lost, pods that come one after the other all start and keep the ids that kubelet gave them: to know
// whose ids are to be withdrawn, the agent does not have kubelet list them.
func TestPodsComeWhileAGPUIsLost(t *testing.T) {
	e := beginWithAgent(t)
	full, gpu := e.allOffers(), e.node.gpus(t)[5]
	holder := e.create(e.pinned("holder", gpu.Index, 10, hold))
	holder.running()
	e.Cleanup(func() { e.node.set(t, fmt.Sprintf("gpu=%d lost=false", gpu.Index)) })
	e.node.set(t, fmt.Sprintf("gpu=%d lost=true", gpu.Index))
	e.offersBecome(full.without(gpu))
	const list, get = "kubelet_pod_resources_endpoint_requests_list", "kubelet_pod_resources_endpoint_requests_get"
	lists, gets := e.kubeletCounts(list), e.kubeletCounts(get)
	const waves, each = 2, 8
	given := map[string]units{}
	var pods []*pod
	for wave := range waves {
		var now []*pod
		// kubelet admits them in a row, and the claim of each makes the agent look while it admits the next
		for i := range each {
			now = append(now, e.create(one(fmt.Sprintf("comes-%d-%d", wave, i), both(gibs(2), percent(1)), hold)))
		}
		for _, p := range now {
			p.running()
			given[p.name] = e.podResources(p)
		}
		pods = append(pods, now...)
	}
	holders := map[string]string{}
	for _, p := range pods {
		its := e.podResources(p)
		if diff := cmp.Diff(given[p.name], its); diff != "" {
			t.Errorf("%s (-given +held):\n%s", p.name, diff)
		}
		if a, b := len(its["main"]["kerf.dev/gpu-memory-gib"]), len(its["main"]["kerf.dev/gpu-percent"]); a != 2 ||
			b != 1 {
			t.Errorf("%s holds %v", p.name, its)
		}
		for _, id := range its["main"]["kerf.dev/gpu-memory-gib"] {
			if other := holders[id]; other != "" {
				t.Errorf("%s is held by %s and %s", id, other, p.name)
			}
			holders[id] = p.name
		}
		if s := p.status("main"); s.RestartCount != 0 {
			t.Errorf("%s was started %d times more", p.name, s.RestartCount)
		}
		if caps := p.caps("main"); caps[e.grantOf(p, "main").Shares[0].GPU] != 2*gib {
			t.Errorf("the driver holds %v for %s", caps, p.name)
		}
		if caps := p.caps("main"); caps[gpu.UUID] > least {
			t.Errorf("%s may take %d bytes of the lost GPU", p.name, caps[gpu.UUID])
		}
	}
	e.offersBecome(full.without(gpu))
	if n := e.kubeletCounts(list); n != lists {
		t.Errorf("kubelet was asked its list %d times", n-lists)
	}
	const came = waves * each
	if n := e.kubeletCounts(get) - gets - 2*came; n < came { // two of them for each pod are the test's
		t.Errorf("the agent asked kubelet after a pod %d times, and %d pods came", n, came)
	}
}
