// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kerf-gpu/kerf/scheduler/rules"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// A pod that requests nothing of ours passes, and is left to other plugins.
func TestOtherPodsPass(t *testing.T) {
	w, s, p := newWorld(t, 1), newState(), podOf("plain", 0)
	if _, status := w.PreFilter(t.Context(), s, p, nil); status.Code() != fwk.Skip {
		t.Errorf("PreFilter: %v", status)
	}
	if status := w.Filter(t.Context(), s, p, nodeInfo{name: "n0"}); !status.IsSuccess() {
		t.Errorf("Filter: %v", status)
	}
	if status := w.PreScore(t.Context(), s, p, nil); status.Code() != fwk.Skip {
		t.Errorf("PreScore: %v", status)
	}
	if status := w.Reserve(t.Context(), s, p, "n0"); !status.IsSuccess() {
		t.Errorf("Reserve: %v", status)
	}
	w.Unreserve(t.Context(), s, p, "n0")
	if status := w.Bind(t.Context(), s, p, "n0"); status.Code() != fwk.Skip {
		t.Errorf("Bind: %v", status)
	}
	if _, status := w.PostFilter(t.Context(), s, p, nil); status.Code() != fwk.Unschedulable || status.Message() != "" {
		t.Errorf("PostFilter: %v", status)
	}
	if _, status := w.SignPod(t.Context(), p); !status.IsSuccess() {
		t.Errorf("SignPod: %v", status)
	}
	if _, status := w.SignPod(t.Context(), podOf("ours", 1)); status.IsSuccess() {
		t.Error("pods that request a GPU are taken for alike")
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	w, p := newWorld(t, 1), podOf("wrong", 4)
	p.Annotations = map[string]string{"kerf.dev/min-enforcement": "strong", "kerf.dev/gpu-count": "x"}
	_, status := w.PreFilter(t.Context(), newState(), p, nil)
	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "min-enforcement") ||
		!strings.Contains(status.Message(), "kerf.dev/gpu-count") ||
		strings.Contains(status.Message(), "\n") {
		t.Errorf("%v", status)
	}
}

// A pod of a gang waits while gangs are disabled, and is not placed alone.
func TestGangWaitsWithoutTheFeatureGate(t *testing.T) {
	w, p, group := newWorld(t, 1), podOf("member", 4), "train"
	p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
	_, status := w.PreFilter(t.Context(), newState(), p, nil)
	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), `PodGroup "train"`) ||
		!strings.Contains(status.Message(), "Kubernetes 1.37") {
		t.Errorf("without the gate: %v", status)
	}
	w.gangs = true
	if _, status := w.PreFilter(t.Context(), newState(), p, nil); !status.IsSuccess() {
		t.Errorf("with the gate: %v", status)
	}
}

func TestNothingIsDecidedBeforeTheStartIsRead(t *testing.T) {
	w := newWorld(t, 1)
	read := false
	w.core.synced = []func() bool{func() bool { return read }}
	if _, status := w.PreFilter(t.Context(), newState(), podOf("p", 1), nil); !errors.Is(status.AsError(), errStart) {
		t.Errorf("%v", status)
	}
	read = true
	w.cycle(podOf("p", 1))
}

// While there are to be rules and none are known, no pod is placed that asks for a GPU.
func TestNothingIsDecidedWithoutRules(t *testing.T) {
	w := newWorld(t, 1)
	w.core.rules.Read(t.Context(), rules.Sources{File: "/does/not/exist"})
	if _, status := w.PreFilter(t.Context(), newState(), podOf("p", 1), nil); !errors.Is(status.AsError(),
		rules.ErrNone) || !strings.Contains(status.Message(), "kerf config validate") {
		t.Errorf("a pod with a GPU: %v", status)
	}
	if _, status := w.PreFilter(t.Context(), newState(), podOf("none", 0), nil); !status.IsSkip() {
		t.Errorf("a pod without one: %v", status)
	}
	file := filepath.Join(t.TempDir(), "sharing.yaml")
	text := "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  profiles:\n  - {name: small, memory: " +
		"30GiB, gpuCount: 1}\n  pools:\n  - {name: default}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.core.rules.Read(t.Context(), rules.Sources{File: file})
	p := podOf("p", 20)
	p.Annotations = map[string]string{"kerf.dev/profile": "small"}
	if status := w.Filter(t.Context(), w.cycle(p), p, nodeInfo{name: "n0"}); !status.IsSuccess() {
		t.Errorf("a pod that names a profile of the rules: %v", status)
	}
}

// The lease of the schedulers says which one writes.
func TestLeaseNamesTheLeader(t *testing.T) {
	w := newWorld(t, 1)
	for holder, leads := range map[string]bool{"other_1": false, "me_17": true, "meier_17": false, "": false} {
		w.core.leases().OnAdd(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseNamespace,
			Name: leaderLease}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}, true)
		if w.core.rules.Leads("me") != leads {
			t.Errorf("held by %q, it leads: %t", holder, !leads)
		}
	}
}

func TestFilterTellsWhetherWaitingHelps(t *testing.T) {
	w := newWorld(t, 2)
	w.report(0, claim{"x", 0, 60}, claim{"y", 1, 60})
	filter := func(p *corev1.Pod, node string) fwk.Code {
		return w.Filter(t.Context(), w.cycle(p), p, nodeInfo{name: node}).Code()
	}
	if got := filter(podOf("p", 40), "n0"); got != fwk.Unschedulable {
		t.Errorf("full: %v", got)
	}
	if got := filter(podOf("p", 40), "n1"); got != fwk.Success {
		t.Errorf("free: %v", got)
	}
	if got := filter(podOf("p", 100), "n1"); got != fwk.UnschedulableAndUnresolvable {
		t.Errorf("too large: %v", got)
	}
	if got := filter(podOf("p", 40), "n7"); got != fwk.UnschedulableAndUnresolvable {
		t.Errorf("unknown: %v", got)
	}
	w.clock = w.clock.Add(time.Minute)
	if got := filter(podOf("p", 40), "n1"); got != fwk.UnschedulableAndUnresolvable {
		t.Errorf("stale: %v", got)
	}
}

// What the framework thinks away or adds counts in the state in which it does so, and nowhere else.
func TestPreFilterExtensions(t *testing.T) {
	w := newWorld(t, 1)
	victim, mate, other := podOf("victim", 60), podOf("mate", 60), podOf("nominated", 60)
	for _, p := range []*corev1.Pod{victim, mate} {
		p.Spec.NodeName = "n0"
		w.core.pods().OnAdd(p, false)
	}
	w.report(0, claim{"uid-victim", 0, 60}, claim{"uid-mate", 1, 60})
	p, node := podOf("p", 40), nodeInfo{name: "n0"}
	s := w.cycle(p)
	fits := func(s *state) bool { return w.Filter(t.Context(), s, p, node).IsSuccess() }
	tried := s.clone()
	if status := w.RemovePod(t.Context(), tried, p, podInfo{pod: victim}, node); !status.IsSuccess() || !fits(tried) ||
		fits(s) {
		t.Errorf("without the victim: %v, fits %t, before %t", status, fits(tried), fits(s))
	}
	w.AddPod(t.Context(), tried, p, podInfo{pod: victim}, node)
	if fits(tried) {
		t.Error("the victim is back, and it fits")
	}
	w.RemovePod(t.Context(), tried, p, podInfo{pod: victim}, node)
	w.AddPod(t.Context(), tried, p, podInfo{pod: other}, node)
	if fits(tried) {
		t.Error("another is nominated, and it fits with it")
	}
	w.RemovePod(t.Context(), tried, p, podInfo{pod: other}, node)
	if !fits(tried) {
		t.Error("the other is gone, and it does not fit")
	}
}

func TestNormalizeScore(t *testing.T) {
	for name, tt := range map[string]struct{ in, want fwk.NodeScoreList }{
		"one": {fwk.NodeScoreList{{Name: "a", Score: -7}}, fwk.NodeScoreList{{Name: "a", Score: 100}}},
		"ties": {fwk.NodeScoreList{{Name: "b", Score: 5}, {Name: "a", Score: 5}},
			fwk.NodeScoreList{{Name: "b", Score: 50}, {Name: "a", Score: 100}}},
		"distances": {fwk.NodeScoreList{{Name: "a", Score: -400}, {Name: "b", Score: 0}, {Name: "c", Score: -40}},
			fwk.NodeScoreList{{Name: "a", Score: 0}, {Name: "b", Score: 100}, {Name: "c", Score: 45}}},
		"none": {nil, nil},
	} {
		(*Plugin)(nil).NormalizeScore(t.Context(), nil, nil, tt.in)
		if d := cmp.Diff(tt.want, tt.in); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestScorePrefersTheNodeInUse(t *testing.T) {
	w := newWorld(t, 2)
	w.report(1, claim{"x", 0, 39})
	p := podOf("p", 40)
	s := w.cycle(p)
	if status := w.PreScore(t.Context(), s, p, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	empty, _ := w.Score(t.Context(), s, p, nodeInfo{name: "n0"})
	used, _ := w.Score(t.Context(), s, p, nodeInfo{name: "n1"})
	if used <= empty {
		t.Errorf("in use %d, empty %d", used, empty)
	}
}

// The Binding carries the placement, and an event and the waiting pods hear of it.
func TestReserveAndBind(t *testing.T) {
	p, q := podOf("p", 60), podOf("q", 60)
	w := newWorld(t, 1)
	w.report(0, claim{"x", 1, 60})
	s := w.cycle(p)
	if status := w.Reserve(t.Context(), s, p, "n0"); !status.IsSuccess() {
		t.Fatal(status)
	}
	late := w.cycle(q)
	if status := w.Reserve(t.Context(), late, q, "n0"); status.Code() != fwk.Unschedulable {
		t.Errorf("the second: %v", status)
	}
	if _, status := w.PostFilter(t.Context(), late, q,
		nil); status.Message() != "needs 60GiB on one GPU: best of 1 node has 19GiB free" {
		t.Errorf("why it waits: %q", status.Message())
	}
	if status := w.Bind(t.Context(), s, p, "n0"); !status.IsSuccess() {
		t.Fatal(status)
	}
	if len(w.handle.client.bindings) != 1 {
		t.Fatalf("bindings %+v", w.handle.client.bindings)
	}
	if binding := w.handle.client.bindings[0]; binding.UID != p.UID || binding.Target.Name != "n0" ||
		binding.Annotations["scheduling.kerf.dev/main"] != uuid(0, 0) {
		t.Errorf("binding %+v", binding)
	}
	want := []string{"p Normal GPUAssigned: Assigned GPUs of node n0: main: 60GiB of " + uuid(0, 0) +
		"; score in thousandths of a GPU: fragmentation -240, hole -5000."}
	if d := cmp.Diff(want, w.reported()); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	w.Unreserve(t.Context(), s, p, "n0")
	if d := cmp.Diff([]string{"ns/q"}, w.handle.woken); d != "" {
		t.Errorf("woken when there was room (-want +got):\n%s", d)
	}
}

// An answer that was lost is looked up; one that says no is believed.
func TestBindThatAnswersWithAnError(t *testing.T) {
	for name, bound := range map[string]bool{"carried out": true, "not carried out": false} {
		t.Run(name, func(t *testing.T) {
			w, p := newWorld(t, 1), podOf("p", 10)
			w.handle.client.lose, w.handle.client.refuse = bound, !bound
			s := w.cycle(p)
			w.Reserve(t.Context(), s, p, "n0")
			if status := w.Bind(t.Context(), s, p, "n0"); status.IsSuccess() != bound {
				t.Errorf("%v", status)
			}
		})
	}
}

// Who waits is tried again when the node that refused it has room, and not because of one that never did.
func TestWaitingPodsAreWoken(t *testing.T) {
	w := newWorld(t, 2)
	w.report(0, claim{"x", 0, 60}, claim{"y", 1, 60})
	p := podOf("p", 40)
	s := w.cycle(p)
	w.PostFilter(t.Context(), s, p, nil) // n1 had room: something else kept it from there
	w.report(1)
	if len(w.handle.woken) != 0 {
		t.Errorf("woken by a node that had room before: %v", w.handle.woken)
	}
	w.report(0, claim{"x", 0, 60})
	if d := cmp.Diff([]string{"ns/p"}, w.handle.woken); d != "" {
		t.Errorf("woken (-want +got):\n%s", d)
	}
	w.report(0)
	if len(w.handle.woken) != 1 {
		t.Error("woken twice for one wait")
	}
	// Annotations say which GPUs it wants.
	w.PostFilter(t.Context(), s, p, nil)
	w.core.pods().OnUpdate(p, p)
	changed := p.DeepCopy()
	changed.Annotations = map[string]string{"kerf.dev/gpu-model": "H100"}
	w.core.pods().OnUpdate(p, changed)
	if len(w.handle.woken) != 2 {
		t.Errorf("after a change of annotations: %v", w.handle.woken)
	}
	w.core.pods().OnDelete(p)
	if len(w.core.waiting.pods) != 0 {
		t.Error("a pod that is gone waits")
	}
}

func TestHints(t *testing.T) {
	events, err := (*Plugin)(nil).EventsToRegister(t.Context())
	if err != nil || len(events) != 1 {
		t.Fatalf("%v, %v", events, err)
	}
	hint := func(n *corev1.Node) fwk.QueueingHint {
		h, err := events[0].QueueingHintFn(klog.Background(), podOf("p", 1), nil, n)
		if err != nil {
			t.Error(err)
		}
		return h
	}
	with := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"kerf.dev/gpu": {}}}}
	if hint(with) != fwk.Queue || hint(&corev1.Node{}) != fwk.QueueSkip {
		t.Errorf("a node with GPUs: %v, without: %v", hint(with), hint(&corev1.Node{}))
	}
}

func TestArgs(t *testing.T) {
	for text, ok := range map[string]bool{`{"sharingConfig":"/x"}`: true, "sharingConfig: /x\n": true,
		`{"sharingconfig2":"/x"}`: false, "": true,
		"profileAmounts: kerf-system/kerf-profiles\nsharingConfigMap: kerf-system/kerf-config\n": true,
		"profileAmounts: kerf-profiles\n": false, "lastGoodConfigMap: kerf-system/kerf-config-last-good\n": true,
		"lastGoodConfigMap: /a\n": false, "sharingConfigMap: a/b/c\n": false} {
		if _, err := readArgs(&runtime.Unknown{Raw: []byte(text)}); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := readArgs(&corev1.Pod{}); err == nil {
		t.Error("a pod was taken for arguments")
	}
}

// The fewest and least important give way, on the node where that costs least.
func TestPreemption(t *testing.T) {
	low, high := int32(1), int32(9)
	victim := func(name, node string, gibs int, priority int32) fwk.PodInfo {
		p := podOf(name, gibs)
		p.Spec.NodeName, p.Spec.Priority, p.Labels = node, &priority, map[string]string{"app": name}
		return podInfo{pod: p}
	}
	never := corev1.PreemptNever
	for name, tt := range map[string]struct {
		change  func(*world, *corev1.Pod)
		evicted []string
	}{
		"one is enough":          {nil, []string{"large"}},
		"it never preempts":      {func(_ *world, p *corev1.Pod) { p.Spec.PreemptionPolicy = &never }, nil},
		"it is not important":    {func(_ *world, p *corev1.Pod) { p.Spec.Priority = &low }, nil},
		"something else is full": {func(w *world, _ *corev1.Pod) { w.handle.full = true }, nil},
		"one is protected": {func(w *world, _ *corev1.Pod) {
			w.handle.budgets = []*policyv1.PodDisruptionBudget{
				{Spec: policyv1.PodDisruptionBudgetSpec{
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "large"}}}}}
		}, []string{"a", "b"}},
		"room comes as it is": {func(w *world, _ *corev1.Pod) {
			info, _ := w.handle.nodes[1].(nodeInfo)
			info.pods[0].GetPod().DeletionTimestamp = &metav1.Time{}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			small := []fwk.PodInfo{victim("a", "n0", 30, low), victim("b", "n0", 30, low),
				victim("kept", "n0", 79, high)}
			large := []fwk.PodInfo{victim("large", "n1", 60, low), victim("mighty", "n1", 79, high)}
			for _, info := range append(append([]fwk.PodInfo{}, small...), large...) {
				w.core.pods().OnAdd(info.GetPod(), false)
			}
			w.report(0, claim{"uid-a", 0, 30}, claim{"uid-b", 0, 30}, claim{"uid-kept", 1, 79})
			w.report(1, claim{"uid-large", 0, 60}, claim{"uid-mighty", 1, 79})
			w.handle.nodes = []fwk.NodeInfo{nodeInfo{name: "n0", pods: small}, nodeInfo{name: "n1", pods: large}}
			p := podOf("p", 70)
			p.Spec.Priority = &high
			if tt.change != nil {
				tt.change(w, p)
			}
			result, status := w.PostFilter(t.Context(), w.cycle(p), p, w.handle)
			if d := cmp.Diff(tt.evicted, w.handle.client.evicted); d != "" {
				t.Fatalf("evicted (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.evicted, w.handle.client.reported); d != "" {
				t.Errorf("reasons (-want +got):\n%s", d)
			}
			if len(tt.evicted) == 0 {
				if status.Code() != fwk.Unschedulable {
					t.Errorf("%v", status)
				}
				return
			}
			if !status.IsSuccess() || result.NominatedNodeName == "" || len(w.handle.events.said) != len(tt.evicted) {
				t.Errorf("%v, %+v, events %q", status, result, w.handle.events.said)
			}
			if _, waits := w.core.waiting.pods[p.UID]; !waits {
				t.Error("nothing has it tried again when they are gone")
			}
		})
	}
}
