// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clientset "k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
)

const gib = int64(sharing.GiB)

// state is a cycle state that only keeps what is written.
type state struct {
	fwk.CycleState
	data map[fwk.StateKey]fwk.StateData
	// gang is true in the cycle of a gang.
	gang bool
}

func (s *state) IsPodGroupSchedulingCycle() bool { return s.gang }

func newState() *state { return &state{data: map[fwk.StateKey]fwk.StateData{}} }

func (s *state) Read(k fwk.StateKey) (fwk.StateData, error) {
	if d, ok := s.data[k]; ok {
		return d, nil
	}
	return nil, fwk.ErrNotFound
}

func (s *state) Write(k fwk.StateKey, d fwk.StateData) { s.data[k] = d }

// Clone implements fwk.CycleState.
func (s *state) Clone() fwk.CycleState { return s.clone() }

// clone is what the framework does before it tries a change.
func (s *state) clone() *state {
	out := newState()
	out.gang = s.gang
	for k, d := range s.data {
		out.data[k] = d.Clone()
	}
	return out
}

// amounts are a node's or its pods' resources.
type amounts struct {
	fwk.Resource
	cpu int64
}

func (a amounts) GetMilliCPU() int64 { return a.cpu }

// nodeInfo is a node as the framework shows it.
type nodeInfo struct {
	fwk.NodeInfo
	name string
	used int64
	pods []fwk.PodInfo
	// labels are those of the node.
	labels map[string]string
}

func (n nodeInfo) GetPods() []fwk.PodInfo                 { return n.pods }
func (n nodeInfo) Snapshot() fwk.NodeInfo                 { return n }
func (nodeInfo) RemovePod(klog.Logger, *corev1.Pod) error { return nil }

func (n nodeInfo) Node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: n.labels}}
}
func (nodeInfo) GetAllocatable() fwk.Resource { return amounts{cpu: 64000} }
func (n nodeInfo) GetRequested() fwk.Resource { return amounts{cpu: n.used} }

// podInfo is a pod as the framework shows it.
type podInfo struct {
	fwk.PodInfo
	pod *corev1.Pod
}

func (p podInfo) GetPod() *corev1.Pod { return p.pod }

// recorder keeps the events.
type recorder struct {
	events.EventRecorderLogger
	mu   sync.Mutex
	said []string
}

func (r *recorder) Eventf(about, _ runtime.Object, kind, reason, _, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := ""
	switch o := about.(type) {
	case *corev1.ObjectReference:
		name = o.Name
	case metav1.Object:
		name = o.GetName()
	}
	r.said = append(r.said, fmt.Sprintf("%s %s %s: ", name, kind, reason)+fmt.Sprintf(note, args...))
}

// api is the API server as far as the plugin asks it: it binds pods, and knows those it has bound.
type api struct {
	clientset.Interface
	typedcorev1.CoreV1Interface
	typedcorev1.PodInterface
	// bindings are the ones that were carried out. lose loses the answer of each, refuse carries out none.
	bindings     []*corev1.Binding
	lose, refuse bool
	// evicted are the deleted pods. reported are those with a reason in their status.
	evicted, reported []string
	// forbid is what a disruption budget says to an eviction; asked counts the evictions that were asked for.
	forbid error
	asked  int
	// version is what the pods have been read as; an eviction changes it. An empty one is not looked at.
	version string
}

func (a *api) EvictV1(_ context.Context, e *policyv1.Eviction) error {
	a.asked++
	if read := e.DeleteOptions.Preconditions.ResourceVersion; a.version != "" {
		if *read != a.version {
			return apierrors.NewConflict(corev1.Resource("pods"), e.Name, errors.New("changed"))
		}
		a.version += "+"
	}
	if a.forbid == nil && string(*e.DeleteOptions.Preconditions.UID) == "uid-"+e.Name {
		a.evicted = append(a.evicted, e.Name)
	}
	return a.forbid
}

func (a *api) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions,
	sub ...string) (*corev1.Pod, error) {
	if strings.Contains(string(data), "PreemptionByScheduler") && slices.Equal(sub, []string{"status"}) {
		a.reported = append(a.reported, name)
	}
	return &corev1.Pod{}, nil
}

func (a *api) Delete(_ context.Context, name string, o metav1.DeleteOptions) error {
	if o.Preconditions != nil && string(*o.Preconditions.UID) == "uid-"+name {
		a.evicted = append(a.evicted, name)
	}
	return nil
}

func (a *api) CoreV1() typedcorev1.CoreV1Interface  { return a }
func (a *api) Pods(string) typedcorev1.PodInterface { return a }
func (a *api) RESTClient() rest.Interface           { return nil }
func (a *api) Bind(_ context.Context, b *corev1.Binding, _ metav1.CreateOptions) error {
	if a.refuse {
		return errors.New("refused")
	}
	a.bindings = append(a.bindings, b)
	if a.lose {
		return errors.New("connection lost")
	}
	return nil
}

func (a *api) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	p := podOf(name, 1)
	for _, b := range a.bindings {
		if b.Name == name {
			p.Spec.NodeName = b.Target.Name
		}
	}
	return p, nil
}

// handle is the framework as far as the plugin asks it.
type handle struct {
	fwk.Handle
	fwk.SharedLister
	fwk.NodeToStatusReader
	client   *api
	events   *recorder
	snapshot fwk.SharedLister
	mutable  *mutable
	mu       sync.Mutex
	woken    []string
	nodes    []fwk.NodeInfo
	// full is what the filters of other plugins say of every node; budgets are the disruption budgets.
	full    bool
	budgets []*policyv1.PodDisruptionBudget
	// refuse are the nodes that other plugins' filters refuse, asked those that they were asked about.
	refuse map[string]fwk.Code
	asked  []string
	// only are the nodes that other plugins' PreFilter leaves, nil all; pre is what it says.
	only      sets.Set[string]
	pre       *fwk.Status
	extenders []fwk.Extender
	self      *Plugin
}

func (h *handle) SnapshotSharedLister() fwk.SharedLister {
	if h.snapshot != nil {
		return h.snapshot
	}
	return h
}
func (h *handle) NodeInfos() fwk.NodeInfoLister   { return listed{nodes: h.nodes} }
func (h *handle) Extenders() []fwk.Extender       { return h.extenders }
func (h *handle) RejectWaitingPod(types.UID) bool { return false }

// NodesForStatusCode takes every node for one that could have room.
func (h *handle) NodesForStatusCode(fwk.NodeInfoLister, fwk.Code) ([]fwk.NodeInfo, error) {
	return h.nodes, nil
}

func (h *handle) RunPreFilterExtensionRemovePod(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo,
	fwk.NodeInfo) *fwk.Status {
	return nil
}

func (h *handle) RunFilterPluginsWithNominatedPods(_ context.Context, _ fwk.CycleState, _ *corev1.Pod,
	node fwk.NodeInfo) *fwk.Status {
	name := node.Node().Name
	h.asked = append(h.asked, name)
	if code, ok := h.refuse[name]; ok {
		return fwk.NewStatus(code, "another plugin's reason")
	}
	if h.full {
		return fwk.NewStatus(fwk.Unschedulable, "no CPU")
	}
	return nil
}

// RunPreFilterPlugins is what the other plugins leave, and asks the plugin itself too, as the framework does.
func (h *handle) RunPreFilterPlugins(ctx context.Context, s fwk.CycleState, pod *corev1.Pod) (*fwk.PreFilterResult,
	*fwk.Status, sets.Set[string]) {
	if result, status := h.self.PreFilter(ctx, s, pod, h.nodes); !result.AllNodes() || !status.IsSuccess() {
		return nil, fwk.NewStatus(fwk.Error, "the plugin is asked while it asks, and does not know"), nil
	}
	return &fwk.PreFilterResult{NodeNames: h.only}, h.pre, nil
}

func (h *handle) ClientSet() clientset.Interface            { return h.client }
func (h *handle) EventRecorder() events.EventRecorderLogger { return h.events }
func (h *handle) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range pods {
		h.woken = append(h.woken, name)
	}
}

// world is a plugin with its fakes, and nodes of two GPUs each.
type world struct {
	*testing.T
	*Plugin
	handle *handle
	clock  time.Time
}

func newWorld(t *testing.T, nodes int) *world {
	w := &world{T: t, clock: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
		handle: &handle{client: &api{}, events: &recorder{}}}
	c, err := newCore(func() time.Time { return w.clock }, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	w.Plugin = newPlugin(c, w.handle, nil, func(string) ([]*policyv1.PodDisruptionBudget,
		error) {
		return w.handle.budgets, nil
	})
	w.handle.self = w.Plugin
	for n := range nodes {
		name := fmt.Sprintf("n%d", n)
		c.nodes().OnAdd(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi"),
				sharing.ResourceMemory: resource.MustParse("158"), sharing.ResourcePercent: resource.MustParse("200"),
				sharing.ResourceGPU: resource.MustParse("2"),
			}}}, true)
		w.report(n)
		c.change(name, func() { c.state.Heartbeat(name, w.clock, 40*time.Second, w.clock) })
	}
	return w
}

func uuid(node, gpu int) string { return fmt.Sprintf("GPU-00000000-0000-0000-%04d-%012d", node, gpu) }

// claim is what the node of a report holds for a pod.
type claim struct {
	uid string
	gpu int
	gib int64
}

func (w *world) report(node int, claims ...claim) { w.reportWith(node, nil, claims...) }

// reportWith is a report with pods that the node has no room for.
func (w *world) reportWith(node int, unplaced []gpunode.PendingPod, claims ...claim) {
	s := gpunode.Status{Conditions: isReady(), Pool: "default", PendingPods: unplaced}
	for g := range 2 {
		s.GPUs = append(s.GPUs, gpunode.GPU{
			UUID: uuid(node, g), Index: g, Model: "H100", CapacityBytes: 80 * gib, AllocatableBytes: 79 * gib,
			FreeBytes: 79 * gib, FreePercent: 100,
			Health: "healthy", Levels: []string{"driver"},
		})
	}
	for i, c := range claims {
		s.GPUs[c.gpu].FreeBytes -= c.gib * gib
		s.Grants = append(s.Grants, gpunode.Grant{ID: fmt.Sprint(i), PodUID: c.uid, Container: "main",
			Shares: []gpunode.Share{{GPU: uuid(node, c.gpu), MemoryBytes: c.gib * gib}}})
	}
	s.Fingerprint = gpunode.Fingerprint(s.Grants)
	name := fmt.Sprintf("n%d", node)
	w.core.change(name, func() { w.core.state.Report(name, s) })
}

// podOf asks for so many GiB; 0 asks for nothing.
func podOf(name string, n int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	if n > 0 {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
			sharing.ResourceMemory: *resource.NewQuantity(int64(n), resource.DecimalSI)}
	}
	return p
}

// reported are the events that were written, with those that wait.
func (w *world) reported() []string {
	for len(w.core.pacer.queue) > 0 {
		one := <-w.core.pacer.queue
		one.write()
	}
	return w.handle.events.said
}

// cycle begins a scheduling cycle, which must be one of ours.
func (w *world) cycle(p *corev1.Pod) *state {
	w.Helper()
	s := newState()
	if _, status := w.PreFilter(w.Context(), s, p, nil); !status.IsSuccess() {
		w.Fatalf("PreFilter of %s: %v", p.Name, status)
	}
	return s
}

// listed is a snapshot of these nodes.
type listed struct {
	fwk.NodeInfoLister
	nodes []fwk.NodeInfo
}

func (l listed) Get(name string) (fwk.NodeInfo, error) {
	for _, info := range l.nodes {
		if info.Node().Name == name {
			return info, nil
		}
	}
	return nil, fmt.Errorf("no node %q", name)
}

// isReady are the conditions of a node whose containers can start.
func isReady() []gpunode.Condition {
	return []gpunode.Condition{{Type: gpunode.ConditionReady, Status: gpunode.True}}
}
