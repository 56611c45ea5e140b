// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
)

// PreFilter leaves the one node that the framework would choose, or all where it cannot tell.
func TestPreFilterChooses(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*world, *state, *corev1.Pod)
		// want is the node that is left; empty: all. asked are the nodes that other plugins were asked about.
		want  string
		asked []string
	}{
		"the best": {nil, "n1", []string{"n1"}},
		"the best of those that pass": {func(w *world, _ *state, _ *corev1.Pod) { w.refuse("n1", "n0") }, "n2",
			[]string{"n1", "n0", "n2"}},
		"none passes": {func(w *world, _ *state, _ *corev1.Pod) { w.refuse("n0", "n1", "n2") }, "",
			[]string{"n1", "n0", "n2"}},
		"others leave a part": {func(w *world, _ *state, _ *corev1.Pod) { w.handle.only = sets.New("n2") },
			"n2", []string{"n2"}},
		"others refuse it": {
			func(w *world, _ *state, _ *corev1.Pod) { w.handle.pre = fwk.NewStatus(fwk.Unschedulable) }, "", nil},
		"a filter fails": {
			func(w *world, _ *state, _ *corev1.Pod) { w.handle.refuse = map[string]fwk.Code{"n1": fwk.Error} }, "",
			[]string{"n1"}},
		"there is no room": {func(w *world, _ *state, _ *corev1.Pod) { w.fill() }, "", nil},
		"an extender has a say": {
			func(w *world, _ *state, _ *corev1.Pod) { w.handle.extenders = make([]fwk.Extender, 1) }, "", nil},
		"it is of a gang": {func(_ *world, s *state, _ *corev1.Pod) { s.gang = true }, "", nil},
		"it is nominated": {
			func(_ *world, _ *state, p *corev1.Pod) { p.Status.NominatedNodeName = "n2" }, "", nil},
		"the best is not in the snapshot": {
			func(w *world, _ *state, _ *corev1.Pod) { w.handle.nodes = w.handle.nodes[:1] }, "n0", []string{"n0"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			w.report(1, claim{"x", 0, 39})
			all := []fwk.NodeInfo{nodeInfo{name: "n0"}, nodeInfo{name: "n1"}, nodeInfo{name: "n2"}}
			w.handle.nodes = all
			s, p := newState(), podOf("p", 40)
			if tt.change != nil {
				tt.change(w, s, p)
			}
			result, status := w.PreFilter(t.Context(), s, p, all)
			if !status.IsSuccess() {
				t.Fatal(status)
			}
			if got := strings.Join(sets.List(resultNodes(result)), " "); got != tt.want {
				t.Errorf("%q is left, want %q", got, tt.want)
			}
			if d := cmp.Diff(tt.asked, w.handle.asked); d != "" {
				t.Errorf("asked about (-want +got):\n%s", d)
			}
			if tt.want == "" {
				return
			}
			if status := w.Filter(t.Context(), s, p, nodeInfo{name: tt.want}); !status.IsSuccess() {
				t.Errorf("Filter of the chosen one: %v", status)
			}
			if best := w.looked(s, p, all); best != tt.want {
				t.Errorf("the framework would choose %q", best)
			}
		})
	}
}

func resultNodes(r *fwk.PreFilterResult) sets.Set[string] {
	if r == nil {
		return nil
	}
	return r.NodeNames
}

// refuse has other plugins refuse nodes.
func (w *world) refuse(names ...string) {
	w.handle.refuse = map[string]fwk.Code{}
	for _, name := range names {
		w.handle.refuse[name] = fwk.UnschedulableAndUnresolvable
	}
}

// fill leaves no room anywhere.
func (w *world) fill() {
	for n := range 3 {
		w.report(n, claim{"a", 0, 60}, claim{"b", 1, 60})
	}
}

// looked is the node that the framework chooses when it looks at all of those that other plugins let pass.
func (w *world) looked(s *state, p *corev1.Pod, nodes []fwk.NodeInfo) string {
	var scores fwk.NodeScoreList
	for _, info := range nodes {
		name := info.Node().Name
		if _, refused := w.handle.refuse[name]; refused || w.handle.only != nil && !w.handle.only.Has(name) {
			continue
		}
		if _, err := w.handle.NodeInfos().Get(name); err != nil {
			continue
		}
		score, _ := w.Score(w.Context(), s, p, info)
		scores = append(scores, fwk.NodeScore{Name: name, Score: score})
	}
	w.NormalizeScore(w.Context(), s, p, scores)
	for _, one := range scores {
		if one.Score == fwk.MaxScore {
			return one.Name
		}
	}
	return ""
}

// A node that was chosen and has changed before it was taken is no reason to wait: all are looked at again at once.
func TestChosenNodeThatChanged(t *testing.T) {
	w, p := newWorld(t, 2), podOf("p", 60)
	all := []fwk.NodeInfo{nodeInfo{name: "n0"}, nodeInfo{name: "n1"}}
	w.handle.nodes = all
	s := newState()
	if result, _ := w.PreFilter(t.Context(), s, p, all); !resultNodes(result).Has("n0") {
		t.Fatalf("%v is left", result)
	}
	w.report(0, claim{"x", 0, 60}, claim{"y", 1, 60})
	if status := w.Filter(t.Context(), s, p, all[0]); status.IsSuccess() {
		t.Fatal("it fits on a full node")
	}
	if _, status := w.PostFilter(t.Context(), s, p, w.handle); status.Code() != fwk.Unschedulable {
		t.Errorf("%v", status)
	}
	if d := cmp.Diff([]string{"ns/p"}, w.handle.woken); d != "" {
		t.Errorf("tried again (-want +got):\n%s", d)
	}
	if len(w.handle.client.evicted) > 0 {
		t.Error("pods gave way for it")
	}
}

// A node that PreFilter chose gets the same message as one that the framework chose.
func TestChosenNodeIsReported(t *testing.T) {
	w, p := newWorld(t, 3), podOf("p", 60)
	w.report(1, claim{"x", 1, 60})
	all := []fwk.NodeInfo{nodeInfo{name: "n0"}, nodeInfo{name: "n1"}, nodeInfo{name: "n2"}}
	w.handle.nodes = all
	s := newState()
	w.PreFilter(t.Context(), s, p, all)
	if status := w.Reserve(t.Context(), s, p, "n1"); !status.IsSuccess() {
		t.Fatal(status)
	}
	quick := cycleOf(s).chosen("n1")
	slow := newState()
	slow.Write(stateKey, &cycle{want: cycleOf(s).want, scores: map[string]int64{"n0": quick.next.Score,
		"n1": quick.Score, "n2": quick.next.Score - 1}})
	if full := cycleOf(slow).chosen("n1"); full.Score != quick.Score || full.room != quick.room ||
		full.next.Node != quick.next.Node || full.next.Score != quick.next.Score {
		t.Errorf("%+v, and by the framework's scores %+v", quick, full)
	}
	if quick.room != 3 || quick.next.Node != "n0" || quick.Score <= quick.next.Score {
		t.Errorf("%+v, next %+v", quick, quick.next)
	}
	status := w.Bind(t.Context(), s, p, "n1")
	if said := w.reported(); !status.IsSuccess() || len(said) != 1 ||
		!strings.Contains(said[0], "Assigned GPUs of node n1: main: 60GiB of "+uuid(1, 0)+"; score") {
		t.Errorf("%v, events %q", status, said)
	}
}
