// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package defrag

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/kube/access"
)

const (
	gib        = int64(1 << 30)
	leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kerf-system/leases"
)

// task is a pod of the fake cluster, with GPUs of its node.
type task struct {
	name, uid, namespace, owner, node string
	gpus                              []int
	gib                               int // 0: whole GPUs
	// profile is that of its MIG instance; gib is then the memory of the instance.
	profile     string
	count       int
	ending      bool
	annotations map[string]string
}

// fake is an API server with nodes of two GPUs, kubelets, controllers and a scheduler.
type fake struct {
	t       *testing.T
	tasks   []*task
	cordons map[string][]gpunode.Cordon
	// changes count those of the nodes' GPUNodes.
	changes       map[string]int
	recordVersion string
	// mig puts each GPU in MIG mode.
	mig bool
	// noLeases refuses to list the agents' heartbeats.
	noLeases bool
	record   map[string]any
	evicted  []string
	now      time.Time
	// writes counts the requests that change something. The one with the number of fail fails, before or after it has
	// an effect.
	writes, fail int
	after        bool
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, cordons: map[string][]gpunode.Cordon{}, changes: map[string]int{},
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	small := func(name, node string, gpu int) *task {
		return &task{name: name, uid: "uid-" + name, namespace: "open", owner: "set-" + name, node: node,
			gpus: []int{gpu}, gib: 20, count: 1}
	}
	f.tasks = []*task{
		small("a", "n0", 0), small("b", "n0", 1), small("c", "n1", 0), small("d", "n1", 1), small("e", "n2", 0),
		{name: "big", uid: "uid-big", namespace: "ml", owner: "job", count: 2},
	}
	f.tasks[2].namespace = "closed"
	f.tasks[4].annotations = map[string]string{"kerf.dev/do-not-disrupt": "true"}
	return f
}

// newMIGFake is a cluster of MIG GPUs. Small instances of two pods are on both GPUs of the first node, and a pod waits
// for two instances with a whole GPU each.
func newMIGFake(t *testing.T) *fake {
	f := newFake(t)
	f.mig = true
	for _, o := range f.tasks {
		o.gib, o.profile = 10, "1g.10gb"
	}
	f.tasks[5].gib, f.tasks[5].profile = 80, "7g.80gb"
	return f
}

func (f *fake) open() *access.Client { return f.openFor(func() {}) }

// openFor is a client whose requests call a function first.
func (f *fake) openFor(before func()) *access.Client {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before()
		f.serve(w, r)
	}))
	f.t.Cleanup(server.Close)
	file := filepath.Join(f.t.TempDir(), "config")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: {server: %q}}\ncontexts:\n- "+
		"{name: x, context: {cluster: c}}\ncurrent-context: x\n", server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	api, err := access.Open(access.Options{File: file})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(api.Close)
	return api
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodGet {
		f.get(w, r.URL.Path)
		return
	}
	f.writes++
	if f.writes == f.fail && !f.after {
		http.Error(w, "killed", http.StatusInternalServerError)
		return
	}
	if f.outdated(r, body) {
		http.Error(w, "the object has been modified", http.StatusConflict)
		return
	}
	f.change(r, body)
	if f.writes == f.fail {
		http.Error(w, "killed", http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, "{}")
}

func (f *fake) get(w http.ResponseWriter, path string) {
	var items []any
	switch {
	case path == "/api/v1/nodes":
		for i := range 3 {
			items = append(items, map[string]any{"metadata": map[string]any{"name": node(i)}, "status": map[string]any{
				"allocatable": map[string]any{"cpu": "64", "memory": "512Gi", "kerf.dev/gpu": "2",
					"kerf.dev/gpu-memory-gib": "158", "kerf.dev/mig-1g.10gb": "14",
					"kerf.dev/mig-7g.80gb": "2"},
				"conditions": []any{map[string]string{"type": "Ready", "status": "True"}}}})
		}
	case path == leasesPath && f.noLeases:
		http.Error(w, "leases are forbidden", http.StatusForbidden)
		return
	case path == leasesPath:
		for i := range 3 {
			items = append(items, map[string]any{"metadata": map[string]string{"name": "kerf-node-" + node(i)},
				"spec": map[string]any{"renewTime": f.now.Format("2006-01-02T15:04:05.000000Z07:00"),
					"leaseDurationSeconds": 120}})
		}
	case path == "/api/v1/pods":
		items = f.pods("")
	case strings.HasSuffix(path, "/pods"):
		items = f.pods(strings.Split(path, "/")[4])
	case path == gpuNodesPath:
		for i := range 3 {
			items = append(items, f.gpuNode(i))
		}
	case strings.HasPrefix(path, gpuNodesPath+"/n"):
		_ = json.NewEncoder(w).Encode(f.gpuNode(int(path[len(path)-1] - '0')))
		return
	case path == "/api/v1/namespaces":
		items = append(items, map[string]any{"metadata": map[string]string{"name": "open"}})
	case path == recordPath && f.record != nil:
		_ = json.NewEncoder(w).Encode(f.record)
		return
	case path == recordPath, strings.HasSuffix(path, "/configmaps/kerf-config"):
		http.NotFound(w, nil)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
}

func node(i int) string { return fmt.Sprintf("n%d", i) }

func uuid(i, g int) string { return fmt.Sprintf("GPU-00000000-0000-0000-%04d-%012d", i, g) }

func (f *fake) pods(namespace string) []any {
	var out []any
	for _, t := range f.tasks {
		if namespace != "" && t.namespace != namespace {
			continue
		}
		containers := []any{container("main", "gpu-memory-gib", t.gib)}
		switch {
		case t.profile != "": // One instance for each container.
			containers = nil
			for i := range t.count {
				containers = append(containers, container(fmt.Sprint("main-", i), "mig-"+t.profile, 1))
			}
		case t.gib == 0:
			containers[0] = container("main", "gpu", t.count)
		}
		meta := map[string]any{"name": t.name, "namespace": t.namespace, "uid": t.uid, "annotations": t.annotations,
			"ownerReferences": []any{map[string]any{"kind": "ReplicaSet", "name": t.owner, "uid": t.owner,
				"controller": true}}}
		if t.ending {
			meta["deletionTimestamp"] = f.now
		}
		status := map[string]any{"phase": "Pending"}
		if t.node != "" {
			status = map[string]any{"phase": "Running", "startTime": f.now.Add(-time.Hour),
				"conditions": []any{map[string]string{"type": "Ready", "status": "True"}}}
		}
		out = append(out, map[string]any{"metadata": meta, "status": status, "spec": map[string]any{"nodeName": t.node,
			"containers": containers}})
	}
	return out
}

func container(name, resource string, amount int) map[string]any {
	return map[string]any{"name": name, "resources": map[string]any{
		"limits": map[string]string{"kerf.dev/" + resource: fmt.Sprint(amount)}}}
}

func (f *fake) gpuNode(i int) map[string]any {
	s := gpunode.Status{Pool: "default", Conditions: []gpunode.Condition{{Type: gpunode.ConditionReady,
		Status: gpunode.True}}}
	for g := range 2 {
		s.GPUs = append(s.GPUs, gpunode.GPU{UUID: uuid(i, g), Index: g, Model: "H100", CapacityBytes: 80 * gib,
			AllocatableBytes: 79 * gib, FreeBytes: 79 * gib, FreePercent: 100, Health: "healthy",
			Levels: []string{"driver"}})
		if f.mig {
			g := &s.GPUs[g]
			g.MIG, g.FreeBytes, g.FreePercent, g.Levels = true, 0, 0, nil
			g.MIGState = &gpunode.MIGState{MemorySlices: 8, Geometry: []gpunode.MIGProfile{
				{Name: "1g.10gb", ID: 19, Compute: 1, MemoryBytes: 10 * gib, MaxInstances: 7, MemorySlices: 1,
					PlacementStarts: []int{0, 1, 2, 3, 4, 5, 6}},
				{Name: "7g.80gb", ID: 0, Compute: 7, MemoryBytes: 80 * gib, MaxInstances: 1, MemorySlices: 8,
					PlacementStarts: []int{0}}}}
		}
	}
	instances := map[int]int{} // Of each GPU.
	for _, t := range f.tasks {
		if t.node != node(i) {
			continue
		}
		grant := gpunode.Grant{ID: t.uid, PodUID: t.uid, Container: "main"} // the name counts for nothing here
		for _, g := range t.gpus {
			share := gpunode.Share{GPU: uuid(i, g), MemoryBytes: int64(t.gib) * gib, MIGProfile: t.profile}
			switch {
			case t.profile != "":
				share.MIGStart = instances[g]
				instances[g]++
			case t.gib == 0:
				share.MemoryBytes, share.Percent, share.Whole, s.GPUs[g].Whole = 79*gib, 100, true, true
				fallthrough
			default:
				s.GPUs[g].FreeBytes -= share.MemoryBytes
			}
			grant.Shares = append(grant.Shares, share)
		}
		s.Grants = append(s.Grants, grant)
	}
	s.Fingerprint = gpunode.Fingerprint(s.Grants)
	meta := map[string]string{"name": node(i), "resourceVersion": f.nodeVersion(node(i))}
	return map[string]any{"metadata": meta, "status": s, "spec": map[string]any{"cordonedGPUs": f.cordons[node(i)]}}
}

// outdated reports whether a write is for an earlier version of its object.
func (f *fake) outdated(r *http.Request, body []byte) bool {
	var m struct {
		Metadata struct{ ResourceVersion string }
	}
	if json.Unmarshal(body, &m) != nil {
		return false
	}
	switch path := r.URL.Path; {
	case path == recordsPath:
		return f.record != nil
	case path == recordPath:
		return m.Metadata.ResourceVersion != f.recordVersion
	case strings.HasPrefix(path, gpuNodesPath):
		return m.Metadata.ResourceVersion != f.nodeVersion(path[len(gpuNodesPath)+1:])
	}
	return false
}

func (f *fake) nodeVersion(name string) string { return fmt.Sprint(1 + f.changes[name]) }

// change has the effect of a write.
func (f *fake) change(r *http.Request, body []byte) {
	switch path := r.URL.Path; {
	case strings.Contains(path, "configmaps"):
		var m map[string]any
		_ = json.Unmarshal(body, &m)
		if meta, ok := m["metadata"].(map[string]any); ok {
			meta["resourceVersion"] = fmt.Sprint(f.writes)
		}
		f.record, f.recordVersion = m, fmt.Sprint(f.writes)
	case strings.HasPrefix(path, gpuNodesPath):
		var patch struct{ Spec gpunode.Spec }
		if err := json.Unmarshal(body, &patch); err != nil {
			f.t.Error(err)
		}
		name := path[len(gpuNodesPath)+1:]
		f.cordons[name] = patch.Spec.CordonedGPUs
		f.changes[name]++
	case strings.HasSuffix(path, "/eviction"):
		name := strings.Split(path, "/")[6]
		for _, t := range f.tasks {
			if t.name == name && strings.Contains(string(body), t.uid) && !t.ending {
				t.ending = true
				f.evicted = append(f.evicted, name)
			}
		}
	default:
		f.t.Errorf("%s %s", r.Method, path)
	}
}

// others lets kubelets, controllers and the scheduler do one step. It places pods on the first node with free GPUs.
func (f *fake) others() {
	f.now = f.now.Add(time.Minute)
	for i, t := range f.tasks {
		if t.ending {
			again := *t
			again.name, again.uid, again.node, again.gpus, again.ending = t.name+"x", t.uid+"x", "", nil, false
			f.tasks[i] = &again
			continue
		}
		for n := range 3 {
			if t.node != "" {
				break
			}
			var free []int
			for g := range 2 {
				if f.free(n, g, t) {
					free = append(free, g)
				}
			}
			if len(free) >= t.count {
				t.node, t.gpus = node(n), free[:t.count]
			}
		}
	}
}

func (f *fake) free(n, g int, t *task) bool {
	left := 80
	for _, o := range f.tasks {
		if o.node == node(n) && slices.Contains(o.gpus, g) {
			if t.gib == 0 || o.gib == 0 {
				return false
			}
			left -= o.gib
		}
	}
	return left >= t.gib && !slices.ContainsFunc(f.cordons[node(n)], func(c gpunode.Cordon) bool {
		return c.UUID == uuid(n, g)
	})
}
