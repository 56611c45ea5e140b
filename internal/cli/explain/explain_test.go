// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/test/clitest"
)

// explained is a small cluster with more data: offers and free capacity of nodes, an event, and a pod that fits
// nowhere.
func explained() map[string][]string {
	lists := clitest.Recorded()
	for i, n := range lists["/api/v1/nodes"] {
		lists["/api/v1/nodes"][i] = strings.Replace(n, `"memory":"512Gi"`,
			`"memory":"512Gi","kerf.dev/gpu-memory-gib":"160"`, 1)
	}
	free := map[string][2]int{"gpu-1": {20, 20}, "gpu-2": {50, 20}, "gpu-3": {20, 50}}
	for i, n := range lists["/apis/kerf.dev/v1alpha1/gpunodes"] {
		name := fmt.Sprintf("gpu-%d", i+1)
		n = strings.ReplaceAll(n, "GPU-gpu-2-0", "GPU-00000000-0000-0000-0000-000000000020") // a plan has UUIDs
		n = strings.Replace(n, `"gpus":`,
			`"pendingPods":[{"podUID":"uid-stuck","reason":"9GiB free, 60GiB requested"}],"gpus":`, 1)
		for g, gib := range free[name] {
			n = strings.Replace(n, fmt.Sprintf(`"index":%d,`, g),
				fmt.Sprintf(`"index":%d,"capacityBytes":%d,"freeBytes":%d,"freePercent":100,`, g, 80<<30, gib<<30), 1)
		}
		var o gpunode.Object
		if err := json.Unmarshal([]byte(n), &o); err != nil {
			panic(err)
		}
		n = strings.Replace(n, `"gpus":`, `"fingerprint":"`+gpunode.Fingerprint(o.Status.Grants)+`","gpus":`, 1)
		lists["/apis/kerf.dev/v1alpha1/gpunodes"][i] = n
	}
	placed := slices.IndexFunc(lists["/api/v1/pods"],
		func(p string) bool { return strings.Contains(p, `"name":"chat-3"`) })
	lists["/api/v1/pods"][placed] = strings.Replace(lists["/api/v1/pods"][placed], `"uid":`,
		`"annotations":{"scheduling.kerf.dev/main":"GPU-00000000-0000-0000-0000-000000000020"},"uid":`, 1)
	pod := func(name, node, gib string) {
		lists["/api/v1/pods"] = append(lists["/api/v1/pods"],
			fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"team","uid":"uid-%s"},"spec":{"nodeName":%q,
			"containers":[{"name":"main","resources":{"limits":{"kerf.dev/gpu-memory-gib":%q}}}]},"status":{"phase":"Pending"}}`, name, name, node, gib))
	}
	pod("huge", "", "70")
	pod("stuck", "gpu-1", "60")
	lists["/api/v1/pods"] = append(lists["/api/v1/pods"],
		`{"metadata":{"name":"plain","namespace":"team","uid":"x"},"spec":{"containers":[{"name":"c"}]},"status":{"phase":"Pending"}}`)
	lists["/api/v1/namespaces/team/events"] = []string{
		`{"reason":"GPUAssigned","message":"Assigned GPUs of node gpu-2: main: 30GiB of GPU-00000000-0000-0000-0000-000000000020","lastTimestamp":"2026-01-02T03:04:05Z","count":1,"source":{"component":"kerf-scheduler"}}`}
	return lists
}

// describer answers with lists, and runs describe pod.
func describer(t *testing.T, lists map[string][]string) func(args ...string) (string, string, int) {
	t.Helper()
	call, _ := describerOf(t, lists)
	return call
}

// describerOf returns the field selector of the last request for events as well.
func describerOf(t *testing.T, lists map[string][]string) (func(args ...string) (string, string, int), *string) {
	t.Helper()
	asked := new(string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		items, ok := lists[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/events") {
			*asked = r.URL.Query().Get("fieldSelector")
		}
		_, _ = fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(items, ","))
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: "+
		"{server: %q}}\ncontexts:\n- {name: x, context: {cluster: c}}\ncurrent-context: x\n", server.URL),
		0o600); err != nil {
		t.Fatal(err)
	}
	return func(args ...string) (string, string, int) {
		out, errOut := &bytes.Buffer{}, &bytes.Buffer{}
		a := &command.App{Out: out, ErrOut: errOut, Getenv: func(string) string { return "" }}
		code, _ := a.Execute(append([]string{"describe", "pod", "--kubeconfig", path, "-n", "team"}, args...), Commands)
		return out.String(), errOut.String(), code
	}, asked
}

func TestExplainPod(t *testing.T) {
	lists := explained()
	call, asked := describerOf(t, lists)
	for name, tt := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"placed": {[]string{"chat-3"}, command.ExitOK, []string{
			"pod team/chat-3 needs 30GiB on one GPU",
			"on node gpu-2, bound by kerf-scheduler, planned on main: GPU-00000000-0000-0000-0000-000000000020",
			"has 30GiB of GPU-00000000-0000-0000-0000-000000000020", "Computed now (",
			"gpu-2  yes   main: GPU-00000000-0000-0000-0000-000000000020", "gpu-3  yes   main: GPU-gpu-3-1",
			"gpu-1  no    -", "2026-01-02T03:04:05Z  GPUAssigned: Assigned GPUs of node gpu-2",
			"not taken into account: list leases", "not taken into account: read configmap kerf-config",
		}},
		"by others": {[]string{"chat-0"}, command.ExitOK, []string{"bound by another scheduler"}},
		"few nodes": {[]string{"chat-3", "--nodes", "1"}, command.ExitOK, []string{"and 1 more with enough free"}},
		"waits": {[]string{"huge"}, exitWaits,
			[]string{"waits: needs 70GiB on one GPU: best of 3 nodes has 50GiB free"}},
		"may be soon": {[]string{"chat-9"}, exitWaits, []string{"waits: nodes have enough free for it now"}},
		"on its node": {[]string{"stuck"}, exitWaits,
			[]string{"waits: node gpu-1 does not have enough free for it: 9GiB free, 60GiB requested"}},
		"no GPU":     {[]string{"plain"}, command.ExitFailure, []string{"requests no GPU of Kerf's"}},
		"unknown":    {[]string{"absent"}, command.ExitFailure, []string{"there is none, or it is at its end"}},
		"wrong":      {[]string{"huge", "-o", "csv"}, command.ExitUsage, []string{"is not a form of output"}},
		"none shown": {[]string{"huge", "--nodes", "0"}, command.ExitUsage, []string{"is too few"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, code := call(tt.args...)
			for _, want := range tt.want {
				if code != tt.code || !strings.Contains(out+errOut, want) {
					t.Errorf("status %d, no %q in:\n%s%s", code, want, out, errOut)
				}
			}
		})
	}
	out, _, code := call("chat-3", "-o", "json")
	var x Explanation
	if err := json.Unmarshal([]byte(out), &x); err != nil || code != command.ExitOK {
		t.Fatalf("status %d, %v: %s", code, err, out)
	}
	if x.Node != "gpu-2" || len(x.Nodes) != 3 || !x.Nodes[0].Fits || x.Nodes[0].Node != "gpu-3" ||
		x.Nodes[2].Reason != "too little free on any one GPU" || len(x.Events) != 1 || len(x.Left) != 2 {
		t.Errorf("%+v", x)
	}
	if *asked != "involvedObject.kind=Pod,involvedObject.name=chat-3" {
		t.Errorf("requested the events of %q", *asked)
	}
	lists["/apis/coordination.k8s.io/v1/namespaces/kerf-system/leases"] = []string{
		`{"metadata":{"name":"kerf-node-gpu-2"},"spec":{"renewTime":"2020-01-01T00:00:00.000000Z","leaseDurationSeconds":40}}`}
	if out, errOut, code := call("chat-3"); code != command.ExitOK ||
		!strings.Contains(out, "kerf-agent was last heard from") ||
		!strings.Contains(out, "kerf-agent was never heard from") {
		t.Errorf("heartbeats that are old: status %d:\n%s%s", code, out, errOut)
	}
}

// A pod by limits that waits learns of the claim to write, if nodes give GPUs only by ResourceClaim.
func TestClaimToWrite(t *testing.T) {
	lists := explained()
	pod := func(name, limits string) {
		lists["/api/v1/pods"] = append(lists["/api/v1/pods"],
			fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"team","uid":"uid-%s"},"spec":{"containers":[
			{"name":"main","resources":{"limits":{%s}}}]},"status":{"phase":"Pending"}}`, name, name, limits))
	}
	pod("both", `"kerf.dev/gpu-memory-gib":"70","kerf.dev/gpu-percent":"25"`)
	pod("percent", `"kerf.dev/gpu-percent":"50"`)
	pod("whole", `"kerf.dev/gpu":"4"`)
	call := describer(t, lists)
	if out, _, code := call("huge"); code != exitWaits || strings.Contains(out, "use a claim") {
		t.Errorf("no node gives GPUs by claim: status %d:\n%s", code, out)
	}
	of := lists["/apis/kerf.dev/v1alpha1/gpunodes"]
	for i, n := range of[1:] {
		of[i+1] = strings.ReplaceAll(n, `"index":`, `"mode":"dra","allocatableBytes":85899345920,"index":`)
	}
	const about = "use a claim: pods get GPUs of 2 nodes (gpu-2, gpu-3) only by ResourceClaim (frontend dra); "
	for name, want := range map[string]string{
		"huge": "write a ResourceClaimTemplate for container main: deviceClassName share.kerf.dev, " +
			"capacity.requests {memory: 70Gi}; 'kerf translate --to dra' writes it\n",
		"both":    `deviceClassName share.kerf.dev, capacity.requests {memory: 70Gi, percent: "25"}; `,
		"percent": `capacity.requests {memory: 40Gi, percent: "50"}; `,
		"whole":   "kube-scheduler serves these limits there: set schedulerName: default-scheduler\n",
	} {
		out, errOut, code := call(name)
		if code != exitWaits || !strings.Contains(out, about) || !strings.Contains(out, want) {
			t.Errorf("%s: status %d, no %q in:\n%s%s", name, code, want, out, errOut)
		}
	}
	var x Explanation
	out, _, _ := call("huge", "-o", "json")
	if err := json.Unmarshal([]byte(out), &x); err != nil || !strings.Contains(x.Remedy, "memory: 70Gi") {
		t.Errorf("%v, the remedy is %q", err, x.Remedy)
	}
	if out, _, code := call("chat-3"); code != command.ExitOK || strings.Contains(out, "use a claim") {
		t.Errorf("a placed pod: status %d:\n%s", code, out)
	}
}

// clusterWithClaims has a node with two GPUs by DRA, and pods with claims.
func clusterWithClaims() map[string][]string {
	lists := explained()
	device := func(uuid, kind, capacity string) string {
		return fmt.Sprintf(`{"name":"%s-%s","attributes":{"uuid":{"string":%q},"type":{"string":%q}}%s}`,
			strings.ToLower(uuid), kind, uuid, kind, capacity)
	}
	const amounts = `,"capacity":{"memory":{"value":"79Gi"},"percent":{"value":"100"}}`
	slice := func(generation int, devices ...string) string {
		return fmt.Sprintf(`{"spec":{"driver":"gpu.kerf.dev","nodeName":"gpu-1","pool":{"name":"gpu-1",
			"generation":%d,"resourceSliceCount":1},"devices":[%s]}}`, generation, strings.Join(devices, ","))
	}
	lists["/apis/resource.k8s.io/v1/resourceslices"] = []string{
		slice(1, device("GPU-OLD", "whole", "")),
		slice(2, device("GPU-A", "share", amounts), device("GPU-A", "whole", ""), device("GPU-B", "share", amounts+
			`,"taints":[{"key":"gpu.kerf.dev/unhealthy","value":"lost","effect":"NoSchedule"}]`))}
	claim := func(name, request, status string) {
		lists["/apis/resource.k8s.io/v1/resourceclaims"] = append(lists["/apis/resource.k8s.io/v1/resourceclaims"],
			fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"team"},"spec":{"devices":{"requests":[{"name":"gpu",
			"exactly":{"deviceClassName":%s}}]}},"status":{%s}}`, name, request, status))
	}
	share := func(gib int) string {
		return fmt.Sprintf(`"share.kerf.dev","capacity":{"requests":{"memory":"%dGi","percent":"25"}}`, gib)
	}
	allocated := func(pod string) string {
		return fmt.Sprintf(`"allocation":{"devices":{"results":[{"request":"gpu","driver":"gpu.kerf.dev",
			"pool":"gpu-1","device":"gpu-a-share","consumedCapacity":{"memory":"30Gi","percent":"25"}}]}},
			"reservedFor":[{"resource":"pods","name":"x","uid":"uid-%s"}]`, pod)
	}
	claim("runs", share(30), allocated("runs"))
	claim("fits", share(10), "")
	claim("large", share(60), "")
	claim("whole", `"whole.kerf.dev"`, "")
	claim("nic", `"nic.example.com"`, "")
	claim("rejected", share(30), allocated("rejected")+`,"devices":[{"driver":"gpu.kerf.dev","pool":"gpu-1",
		"device":"gpu-a-share","conditions":[{"type":"Ready","status":"False","reason":"Rejected","message":"no cap."}]}]`)
	pod := func(name, claim, node string) {
		lists["/api/v1/pods"] = append(lists["/api/v1/pods"], fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"team",
			"uid":"uid-%s"},"spec":{"nodeName":%q,"resourceClaims":[{"name":"gpu","resourceClaimName":%q}],
			"containers":[{"name":"main","resources":{"claims":[{"name":"gpu"}]}}]},"status":{"phase":"Pending"}}`, name,
			name, node, claim))
	}
	for _, name := range []string{"fits", "large", "whole", "nic", "absent-claim"} {
		pod(name, name, "")
	}
	pod("other", "runs", "")
	pod("rejected", "rejected", "gpu-1")
	lists["/api/v1/pods"] = append(lists["/api/v1/pods"], `{"metadata":{"name":"early","namespace":"team","uid":"e"},
		"spec":{"resourceClaims":[{"name":"gpu","resourceClaimTemplateName":"t"}],"containers":[{"name":"main"}]},
		"status":{"phase":"Pending"}}`)
	return lists
}

// TestExplainClaims: a pod with a claim waits for its claim, for devices of a node, or for what its events say.
func TestExplainClaims(t *testing.T) {
	lists := clusterWithClaims()
	lists["/api/v1/namespaces/team/events"] = []string{`{"reason":"FailedScheduling",
		"message":"0/3 nodes are available.","lastTimestamp":"2026-01-02T03:04:05Z","count":7,"source":{"component":"default-scheduler"}}`}
	call := describer(t, lists)
	for name, tt := range map[string]struct {
		code int
		want []string
	}{
		"fits": {exitWaits, []string{"pod team/fits needs 10GiB and 25% (claim fits, request gpu)",
			"claim fits: 10GiB",
			"waits: a node has the devices of its claims now; the last event is FailedScheduling: 0/3 nodes",
			"gpu-1  yes   fits/gpu: GPU-A", "FailedScheduling (7 times)"}},
		"large": {exitWaits, []string{"waits: none of 1 nodes has the devices of its claims: no GPU for 60GiB and " +
			"25% (claim large, request gpu): the largest free share is 19GiB, taint gpu.kerf.dev/unhealthy=lost",
			"gpu-1  no"}},
		"whole": {exitWaits, []string{"no GPU for a whole GPU (claim whole, request gpu): other claims use 1 GPUs"}},
		"other": {exitWaits, []string{"waits: claim runs is reserved for another pod; give each pod a claim"}},
		"rejected": {exitWaits, []string{"allocated: request gpu: 30GiB and 25% of gpu-a-share on node gpu-1",
			"waits: no cap."}},
		"early":        {exitWaits, []string{"waits: claim gpu of the pod has not been created from its template"}},
		"absent-claim": {exitWaits, []string{"waits: there is no claim absent-claim"}},
		"nic":          {command.ExitFailure, []string{"requests no GPU of Kerf's"}},
	} {
		out, errOut, code := call(name)
		for _, want := range tt.want {
			if code != tt.code || !strings.Contains(out+errOut, want) {
				t.Errorf("%s: status %d, no %q in:\n%s%s", name, code, want, out, errOut)
			}
		}
	}
	out, _, _ := call("large", "-o", "json")
	var x Explanation
	if err := json.Unmarshal([]byte(out), &x); err != nil || len(x.Claims) != 1 || x.Claims[0].Claim != "large" ||
		len(x.Nodes) != 1 || x.Nodes[0].Fits {
		t.Errorf("%v: %s", err, out)
	}
	delete(lists, "/apis/resource.k8s.io/v1/resourceslices")
	if out, _, _ := call("fits"); !strings.Contains(out, "no node publishes GPUs by DRA") {
		t.Errorf("without slices: %s", out)
	}
}
