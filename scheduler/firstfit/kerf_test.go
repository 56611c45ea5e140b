// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package firstfit_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/lab/policy/dra"
	"github.com/kerf-gpu/kerf/scheduler/plugin"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// reportOf is what the agent of a node reports while it has prepared no claim. The GPUs are those of dra.Slices.
func reportOf(n cluster.Node) gpunode.Status {
	const memory = 1000 * int64(sharing.GiB)
	s := gpunode.Status{Pool: "default",
		Conditions: []gpunode.Condition{{Type: gpunode.ConditionReady, Status: gpunode.True}}}
	for g := range n.GPUs {
		s.GPUs = append(s.GPUs, gpunode.GPU{UUID: fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", g), Index: g,
			CapacityBytes: memory, AllocatableBytes: memory, FreeBytes: memory, FreePercent: 100, Health: "healthy",
			Mode: gpunode.ModeDRA, Levels: []string{"driver"}})
	}
	return s
}

// startKerf starts kerf-scheduler with the configuration that Kerf ships.
func startKerf(t *testing.T, nodes []cluster.Node, reports map[string]gpunode.Status,
	heartbeats map[string]time.Duration) *kube {
	t.Helper()
	k := newKube(t, nodes)
	for node, valid := range heartbeats {
		must(k.client.CoordinationV1().Leases("kerf-system").Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "kerf-node-" + node, Namespace: "kerf-system"},
			Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Now().Add(-time.Minute)},
				LeaseDurationSeconds: new(int32(valid.Seconds()))}}, metav1.CreateOptions{}))(t)
	}
	return k.start(scheduler.WithProfiles(kerfProfile(t)), scheduler.WithKubeConfig(serveReports(t, reports)),
		scheduler.WithFrameworkOutOfTreeRegistry(runtime.Registry{plugin.Name: plugin.NewFactory(nil)}))
}

// kerfProfile is that of deploy/scheduler, under the name of the default scheduler and without arguments.
func kerfProfile(t *testing.T) schedconfig.KubeSchedulerProfile {
	t.Helper()
	text := must(os.ReadFile("../../deploy/scheduler/20-config.yaml"))(t)
	var shipped corev1.ConfigMap
	if err := yaml.Unmarshal(text, &shipped); err != nil {
		t.Fatal(err)
	}
	object, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(shipped.Data["scheduler.yaml"]), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, ok := object.(*schedconfig.KubeSchedulerConfiguration)
	if !ok || len(c.Profiles) != 1 {
		t.Fatalf("%T with other than one profile", object)
	}
	p := c.Profiles[0]
	p.SchedulerName = corev1.DefaultSchedulerName
	p.PluginConfig = slices.DeleteFunc(p.PluginConfig,
		func(one schedconfig.PluginConfig) bool { return one.Name == plugin.Name })
	return p
}

// serveReports is an API server that has only GPUNodes.
func serveReports(t *testing.T, reports map[string]gpunode.Status) *rest.Config {
	t.Helper()
	var items []map[string]any
	for node, s := range reports {
		items = append(items, map[string]any{"apiVersion": gpunode.Group + "/" + gpunode.Version,
			"kind": gpunode.Kind, "metadata": map[string]any{"name": node, "resourceVersion": "1"}, "status": s})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch query := r.URL.Query(); {
		case r.URL.Path != "/apis/kerf.dev/v1alpha1/gpunodes":
			http.NotFound(w, r)
		case query.Get("sendInitialEvents") == "true": // the client then lists
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","reason":"Invalid","code":422}`))
		case query.Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			_ = json.NewEncoder(w).Encode(map[string]any{"kind": "GPUNodeList",
				"apiVersion": gpunode.Group + "/" + gpunode.Version,
				"metadata":   map[string]any{"resourceVersion": "1"}, "items": items})
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &rest.Config{Host: server.URL}
}

// healthy are the reports and heartbeats of nodes with running agents.
func healthy(nodes []cluster.Node) (map[string]gpunode.Status, map[string]time.Duration) {
	reports, heartbeats := map[string]gpunode.Status{}, map[string]time.Duration{}
	for _, n := range nodes {
		reports[n.Name], heartbeats[n.Name] = reportOf(n), 24*time.Hour
	}
	return reports, heartbeats
}

// ownClass creates a device class of shares with a name that Kerf does not know.
func (k *kube) ownClass() string {
	class := dra.Classes()[0].DeepCopy()
	class.Name = "team-gpu"
	must(k.client.ResourceV1().DeviceClasses().Create(k.Context(), class, metav1.CreateOptions{}))(k.T)
	k.wait(func() bool {
		_, err := k.informers.Resource().V1().DeviceClasses().Lister().Get(class.Name)
		return err == nil
	})
	return class.Name
}

// TestKerfScoreIsPolicy: for each of 40 pods with claims on 3 nodes, the policy dra-kerf takes the node and the GPUs
// that kerf-scheduler takes. The nodes report no grant, so that all claims count as they are allocated.
func TestKerfScoreIsPolicy(t *testing.T) {
	reports, heartbeats := healthy(labNodes())
	kube := startKerf(t, labNodes(), reports, heartbeats)
	policy, err := dra.New("dra-kerf", labNodes(), nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	lab, draw, rejected, used := cluster.New(labNodes(), policy), rand.New(rand.NewPCG(9, 31)), 0, map[string]int{}
	for i := range 40 {
		pod := drawPod(fmt.Sprintf("pod-%02d", i), draw)
		for pod.GPUs == 0 {
			pod = drawPod(pod.Name, draw)
		}
		claim, want := dra.Claim(pod.Shape), outcome{}
		if i == 0 { // kerf-scheduler sees the nodes with the first pod that it scores. So it must learn nothing of it.
			pod.GPUs, pod.Share = 1, 500
			claim = dra.Claim(pod.Shape)
			claim.Requests[0].Exactly.DeviceClassName = kube.ownClass()
		} else {
			lab.Learn(pod.Request)
		}
		if p, fits := lab.Choose(pod.Request); fits {
			want = outcome{lab.Node(p.Node).Name, p.GPUs}
			used[want.node]++
			if err := lab.Take(pod.Request, p); err != nil {
				t.Fatal(err)
			}
		} else {
			rejected++
		}
		if got := kube.scheduleAs(pod, claim); got.node != want.node || !slices.Equal(got.gpus, want.gpus) {
			t.Fatalf("%s, %+v: kerf-scheduler takes %+v, dra-kerf %+v", pod.Name, pod.Request, got, want)
		}
	}
	if rejected < 3 || rejected > 15 || len(used) < 3 {
		t.Errorf("%d of 40 pods are rejected, nodes have %v: too few of one kind", rejected, used)
	}
	t.Logf("%d rejected, nodes have %v", rejected, used)
}
