// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedschedulingv1beta1 "k8s.io/client-go/kubernetes/typed/scheduling/v1beta1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"

	"github.com/kerf-gpu/kerf/api/gpunode"
)

// gangAPI is an API server with pods and groups: a pod changes its version with each change, and has none any more once
// it was deleted.
type gangAPI struct {
	clientset.Interface
	typedcorev1.CoreV1Interface
	typedcorev1.PodInterface
	typedschedulingv1beta1.SchedulingV1beta1Interface
	pods   map[string]*corev1.Pod
	groups map[string]*schedulingv1beta1.PodGroup
	// ended are the pods that were deleted, each with the reason in its status; away fails all calls.
	ended []string
	away  bool
}

func (a *gangAPI) CoreV1() typedcorev1.CoreV1Interface  { return a }
func (a *gangAPI) Pods(string) typedcorev1.PodInterface { return a }
func (a *gangAPI) RESTClient() rest.Interface           { return nil }
func (a *gangAPI) SchedulingV1beta1() typedschedulingv1beta1.SchedulingV1beta1Interface {
	return a
}
func (a *gangAPI) PodGroups(string) typedschedulingv1beta1.PodGroupInterface { return podGroups{a: a} }

// podGroups are the API server's.
type podGroups struct {
	typedschedulingv1beta1.PodGroupInterface
	a *gangAPI
}

func (g podGroups) Get(_ context.Context, name string, _ metav1.GetOptions) (*schedulingv1beta1.PodGroup, error) {
	if g.a.away {
		return nil, errors.New("no answer")
	}
	if pg, ok := g.a.groups[name]; ok {
		return pg, nil
	}
	return nil, apierrors.NewNotFound(schedulingv1beta1.Resource("podgroups"), name)
}

func (a *gangAPI) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions,
	sub ...string) (*corev1.Pod, error) {
	var patch corev1.Pod
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	p, ok := a.pods[name]
	switch {
	case a.away:
		return nil, errors.New("no answer")
	case !ok:
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	case p.UID != patch.UID || p.ResourceVersion != patch.ResourceVersion || !slices.Equal(sub, []string{"status"}):
		return nil, apierrors.NewConflict(corev1.Resource("pods"), name, errors.New("changed"))
	}
	p.ResourceVersion += "+"
	p.Status.Conditions = patch.Status.Conditions
	return p, nil
}

func (a *gangAPI) Delete(_ context.Context, name string, o metav1.DeleteOptions) error {
	p, ok := a.pods[name]
	if !ok || *o.Preconditions.UID != p.UID {
		return apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	c := p.Status.Conditions[0]
	a.ended = append(a.ended, fmt.Sprintf("%s %s %s", name, c.Type, c.Reason))
	delete(a.pods, name)
	return nil
}

var faultTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// gangWorld is one gang of three, the first of which node n0 ends for a fault, and pods that must go on.
func gangWorld(t *testing.T, group *schedulingv1beta1.PodGroup) (w *world, g *gangs, a *gangAPI) {
	w = newWorld(t, 3)
	a = &gangAPI{pods: map[string]*corev1.Pod{}, groups: map[string]*schedulingv1beta1.PodGroup{"train": group}}
	made := func(name, of, node string, at time.Time) {
		p := podOf(name, 10)
		p.Spec.NodeName, p.ResourceVersion, p.CreationTimestamp = node, "7", metav1.NewTime(at)
		if of != "" {
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &of}
		}
		a.pods[name] = p
	}
	before := faultTime.Add(-time.Hour)
	// the last in the second of the fault: the API server tells whole ones
	for i, at := range []time.Time{before, before, faultTime} {
		made(fmt.Sprintf("train-%d", i), "train", fmt.Sprintf("n%d", i), at)
	}
	made("train-new", "train", "n1", faultTime.Add(time.Second)) // made in the place of the one that was lost
	made("train-waits", "train", "", before)
	made("other-0", "other", "n1", before)
	made("alone", "", "n2", before)
	g = &gangs{core: w.core, client: a, events: func() events.EventRecorderLogger { return w.handle.events },
		pods: func(namespace string) ([]*corev1.Pod, error) {
			var all []*corev1.Pod
			for _, p := range a.pods {
				if p.Namespace == namespace {
					all = append(all, p.DeepCopy())
				}
			}
			return all, nil
		}}
	return w, g, a
}

func gangOfAtLeast(n int32) *schedulingv1beta1.PodGroup {
	pg := &schedulingv1beta1.PodGroup{}
	pg.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: n}
	return pg
}

// tell has a node's object say that a pod of it ends.
func (w *world) tell(node, pod string) {
	w.Helper()
	status := gpunode.Status{TerminatingPods: []gpunode.TerminatingPod{{PodUID: "uid-" + pod, Namespace: "ns", Pod: pod,
		Reason: "GPU X is lost", Since: faultTime.Format(time.RFC3339)}}}
	w.core.gpuNodes(w.Context()).OnAdd(asKept(w, map[string]any{"metadata": map[string]string{"name": node},
		"status": status}), false)
}

// leaves takes a pod out of the cluster, as its deletion does.
func (w *world) leaves(a *gangAPI, name string) {
	w.core.pods().OnDelete(a.pods[name])
	delete(a.pods, name)
}

// A gang that has lost a pod to a faulty GPU, and is too small without it, ends on all nodes once that pod has ended.
// Only its pods from before the fault end.
func TestAGangEndsTogether(t *testing.T) {
	all := []string{"train-1 DisruptionTarget GPUFault", "train-2 DisruptionTarget GPUFault"}
	together := &schedulingv1beta1.PodGroup{}
	together.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
	for name, tc := range map[string]struct {
		group *schedulingv1beta1.PodGroup
		node  string
		lost  func(w *world, a *gangAPI)
		want  []string
	}{
		"it was deleted": {gangOfAtLeast(3), "n0", func(w *world, a *gangAPI) { w.leaves(a, "train-0") },
			all},
		"it is being deleted": {gangOfAtLeast(3), "n0",
			func(_ *world, a *gangAPI) { a.pods["train-0"].DeletionTimestamp = &metav1.Time{Time: faultTime} }, all},
		"it still runs": {gangOfAtLeast(3), "n0", func(*world, *gangAPI) {}, nil},
		"enough are left": {gangOfAtLeast(2), "n0", func(w *world, a *gangAPI) { w.leaves(a, "train-0") },
			nil},
		"they go together": {together, "n0", func(w *world, a *gangAPI) { w.leaves(a, "train-0") }, all},
		"a group that is no gang": {&schedulingv1beta1.PodGroup{}, "n0",
			func(w *world, a *gangAPI) { w.leaves(a, "train-0") }, nil},
		"said by another node": {gangOfAtLeast(3), "n2", func(w *world, a *gangAPI) { w.leaves(a, "train-0") },
			nil},
		"said of what still runs": {gangOfAtLeast(3), "n2",
			func(_ *world, a *gangAPI) { a.pods["train-0"].DeletionTimestamp = &metav1.Time{Time: faultTime} }, nil},
		"no one knows the pod": {gangOfAtLeast(3), "n0",
			func(_ *world, a *gangAPI) { delete(a.pods, "train-0") }, nil},
		"it left too long ago": {gangOfAtLeast(3), "n0",
			func(w *world, a *gangAPI) { w.leaves(a, "train-0"); w.clock = w.clock.Add(leftFor + 1) }, nil},
		"the API server is not there": {gangOfAtLeast(3), "n0",
			func(w *world, a *gangAPI) { w.leaves(a, "train-0"); a.away = true }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w, g, a := gangWorld(t, tc.group)
			w.tell(tc.node, "train-0")
			g.look(t.Context())
			if len(a.ended) > 0 {
				t.Fatalf("ended before the pod had: %q", a.ended)
			}
			tc.lost(w, a)
			for range 3 {
				g.look(t.Context())
			}
			slices.Sort(a.ended)
			if !slices.Equal(a.ended, tc.want) {
				t.Errorf("ended %q, want %q", a.ended, tc.want)
			}
			said := w.handle.events.said
			if len(said) != len(tc.want) {
				t.Errorf("events %q", said)
			}
			for _, s := range said {
				if !strings.HasSuffix(s, "Warning GangMemberFailed: The pod ends with its gang train because a faulty "+
					"GPU of node n0 ended pod train-0: GPU X is lost.") {
					t.Errorf("event %q", s)
				}
			}
		})
	}
}

// What fails is tried again, and what a node takes back is not: its GPU is well, and the pod goes on.
func TestAGangIsTriedAgain(t *testing.T) {
	w, g, a := gangWorld(t, gangOfAtLeast(3))
	w.tell("n0", "train-0")
	w.leaves(a, "train-0")
	a.away = true
	g.look(t.Context())
	a.away = false
	g.look(t.Context())
	if len(a.ended) != 2 {
		t.Errorf("ended %q", a.ended)
	}

	w, g, a = gangWorld(t, gangOfAtLeast(3))
	w.tell("n0", "train-0")
	g.look(t.Context())
	w.report(0)
	w.core.gpuNodes(t.Context()).OnAdd(asKept(t, map[string]any{"metadata": map[string]any{"name": "n0"}}), false)
	w.leaves(a, "train-0")
	g.look(t.Context())
	if len(a.ended) != 0 {
		t.Errorf("ended for a GPU that is well: %q", a.ended)
	}
}

// Of two schedulers, one standing by, each pod is ended by one: the other finds it changed.
func TestOneOfTwoEndsAGang(t *testing.T) {
	w, g, a := gangWorld(t, gangOfAtLeast(3))
	stale, err := g.pods("ns")
	if err != nil {
		t.Fatal(err)
	}
	second := *g
	second.pods = func(string) ([]*corev1.Pod, error) { return stale, nil }
	w.tell("n0", "train-0")
	a.pods["train-0"].DeletionTimestamp = &metav1.Time{Time: faultTime}
	for _, p := range stale {
		if p.Name == "train-0" {
			p.DeletionTimestamp = &metav1.Time{Time: faultTime}
		}
	}
	for _, p := range a.pods { // the first has said why, and not ended them yet
		p.ResourceVersion += "+"
	}
	second.look(t.Context())
	if len(a.ended) != 0 || len(w.handle.events.said) != 0 {
		t.Errorf("a pod was ended as it was not read: %q, %q", a.ended, w.handle.events.said)
	}
	g.look(t.Context())
	if len(a.ended) != 2 || len(w.handle.events.said) != 2 {
		t.Errorf("ended %q, said %q", a.ended, w.handle.events.said)
	}
}
