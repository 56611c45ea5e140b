// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package placeholder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kerf-gpu/kerf/sharing"
)

// api is the API server as far as the controller uses it. It keeps the pods of one namespace.
type api struct {
	clientset.Interface
	typedcorev1.CoreV1Interface
	typedcorev1.PodInterface
	pods map[string]*corev1.Pod
	// calls are the changes, in their order. fail makes those fail that begin with it.
	calls []string
	fail  string
}

func (a *api) CoreV1() typedcorev1.CoreV1Interface  { return a }
func (a *api) Pods(string) typedcorev1.PodInterface { return a }

func (a *api) called(format string, args ...any) error {
	call := fmt.Sprintf(format, args...)
	a.calls = append(a.calls, call)
	if a.fail != "" && strings.HasPrefix(call, a.fail) {
		return errors.New("connection lost")
	}
	return nil
}

func (a *api) Create(_ context.Context, p *corev1.Pod, _ metav1.CreateOptions) (*corev1.Pod, error) {
	if err := a.called("create %s", p.Name); err != nil {
		return nil, err
	}
	if a.pods[p.Name] != nil {
		return nil, apierrors.NewAlreadyExists(corev1.Resource("pods"), p.Name)
	}
	p = p.DeepCopy()
	p.UID = types.UID("uid-of-" + p.Name)
	a.pods[p.Name] = p
	return p, nil
}

func (a *api) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	if err := a.called("delete %s", name); err != nil {
		return err
	}
	delete(a.pods, name)
	return nil
}

func (a *api) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions,
	sub ...string) (*corev1.Pod, error) {
	p, patch := a.pods[name], struct {
		Metadata struct{ Labels map[string]*string }
		Status   corev1.PodStatus
	}{}
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	if len(sub) > 0 {
		if err := a.called("status %s", name); err != nil {
			return nil, err
		}
		p.Status.Conditions = patch.Status.Conditions
		return p, nil
	}
	for label, value := range patch.Metadata.Labels {
		if err := a.called("label %s %s %t", name, label, value != nil); err != nil {
			return nil, err
		}
		if value == nil {
			delete(p.Labels, label)
		} else {
			p.Labels[label] = *value
		}
	}
	return p, nil
}

// world is a controller with two nodes with agents, and a pod that needs a node.
type world struct {
	*Controller
	api   *api
	needs []Need
	pod   *corev1.Pod
	told  []string
}

func newWorld() *world {
	w := &world{api: &api{pods: map[string]*corev1.Pod{}}, pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "u1"},
		Spec: corev1.PodSpec{NodeSelector: map[string]string{"gpu": "yes"},
			Containers: []corev1.Container{{Name: "main", Image: "secret", Env: []corev1.EnvVar{{Name: "A"}},
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
					sharing.ResourceMemory: resource.MustParse("40")}}}}}}}
	for _, node := range []string{"n0", "n1"} {
		w.join(node)
	}
	w.Controller = &Controller{Client: w.api, Namespace: "kerf-system", Needs: func() []Need { return w.needs },
		Pods: func() ([]*corev1.Pod, error) {
			var out []*corev1.Pod
			for _, p := range w.api.pods {
				out = append(out, p.DeepCopy())
			}
			slices.SortFunc(out, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
			return out, nil
		},
		Pod: func(namespace, name string) (*corev1.Pod, error) {
			if w.pod == nil || namespace+"/"+name != w.pod.Namespace+"/"+w.pod.Name {
				return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
			}
			return w.pod, nil
		},
		Created: func(p *corev1.Pod, placeholder string) { w.told = append(w.told, p.Name+" "+placeholder) }}
	return w
}

// join adds a node with an agent.
func (w *world) join(node string) {
	w.api.pods["agent-"+node] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node,
		Labels: map[string]string{"app.kubernetes.io/name": "kerf-agent"}}, Spec: corev1.PodSpec{NodeName: node}}
}

// look returns what the controller changes.
func (w *world) look(t *testing.T) string {
	w.api.calls = nil
	w.Reconcile(t.Context())
	return strings.Join(w.api.calls, "\n")
}

func TestOnePlaceholder(t *testing.T) {
	w := newWorld()
	if got := w.look(t); got != "" {
		t.Fatalf("without a need: %s", got)
	}
	w.needs = []Need{{w.pod, []string{"n0"}}}
	const label = "placeholder.kerf.dev/u1"
	if got, want := w.look(t),
		"label agent-n0 "+label+" true\ncreate placeholder-u1\nstatus placeholder-u1"; got != want {
		t.Fatalf("changes:\n%s\nwant\n%s", got, want)
	}
	if got := w.look(t); got != "" {
		t.Errorf("a second time: %s", got)
	}
	p := w.api.pods["placeholder-u1"]
	c := p.Spec.Containers[0]
	if !isUnschedulable(p) || p.Spec.SchedulerName != scheduler || p.Spec.NodeSelector["gpu"] != "yes" ||
		c.Image != image || len(c.Env) > 0 || c.Resources.Limits[sharing.ResourceMemory] != resource.MustParse("40") ||
		p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.
			MatchExpressions[0].Key != label {
		t.Errorf("%+v", p)
	}
	wantGolden(t, p)
	if want := []string{"train kerf-system/placeholder-u1"}; !slices.Equal(w.told, want) {
		t.Errorf("reported %q", w.told)
	}
	w.pod.Spec.NodeName = "n2"
	w.needs = nil
	if got, want := w.look(t), "delete placeholder-u1\nlabel agent-n0 "+label+" false"; got != want {
		t.Errorf("with a node: %s", got)
	}
	if got := w.look(t); got != "" {
		t.Errorf("at the end: %s", got)
	}
}

var update = flag.Bool("update", false, "write testdata/placeholder.json again")

// wantGolden requires the placeholder of testdata.
func wantGolden(t *testing.T, p *corev1.Pod) {
	t.Helper()
	p = p.DeepCopy()
	p.UID, p.Status = "", corev1.PodStatus{}
	got, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	const file = "testdata/placeholder.json"
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || !bytes.Equal(want, got) {
		t.Errorf("%s differs (%v); -update writes it:\n%s", file, err, got)
	}
}

// TestNewNodeIsExcludedOnceItIsKnown: a node that joins stays a candidate until it turns out to have no room.
func TestNewNodeIsExcludedOnceItIsKnown(t *testing.T) {
	w := newWorld()
	w.needs = []Need{{w.pod, []string{"n0", "n1"}}}
	w.look(t)
	w.join("n2")
	if got := w.look(t); got != "" {
		t.Errorf("a new node: %s", got)
	}
	w.needs[0].Nodes = []string{"n0", "n1", "n2"}
	if got := w.look(t); got != "label agent-n2 placeholder.kerf.dev/u1 true" {
		t.Errorf("a new node without room: %s", got)
	}
}

// TestPlaceholderEndsWithItsPod: a pod that is gone, or is another one of the same name, needs no placeholder.
func TestPlaceholderEndsWithItsPod(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"gone":    func(w *world) { w.pod = nil },
		"another": func(w *world) { w.pod.UID = "u2" },
		"deleted": func(w *world) { w.pod.DeletionTimestamp = &metav1.Time{} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.needs = []Need{{w.pod.DeepCopy(), []string{"n0"}}}
			w.look(t)
			w.needs = nil
			change(w)
			if got := w.look(t); !strings.HasPrefix(got, "delete placeholder-u1\n") {
				t.Errorf("changes: %s", got)
			}
		})
	}
}

// TestPlaceholderWithoutExclusion: no placeholder exists before its nodes are excluded, and a lost call is repeated.
func TestPlaceholderWithoutExclusion(t *testing.T) {
	w := newWorld()
	w.needs = []Need{{w.pod, []string{"n0"}}}
	w.api.fail = "label"
	if got := w.look(t); strings.Contains(got, "create") {
		t.Errorf("without the label: %s", got)
	}
	w.api.fail = "status"
	w.look(t)
	w.api.fail = ""
	if got := w.look(t); got != "create placeholder-u1\nstatus placeholder-u1" || len(w.told) != 1 {
		t.Errorf("after a lost status: %s; reported %q", got, w.told)
	}
}

// The placeholder is gone before its pod has a node. One that cannot be deleted is deleted later.
func TestPlaceholderEndsBeforeTheBinding(t *testing.T) {
	w := newWorld()
	pods := w.Pod
	w.Pod = func(namespace, name string) (*corev1.Pod, error) {
		if p := w.api.pods[name]; p != nil && namespace == "kerf-system" {
			return p, nil
		}
		return pods(namespace, name)
	}
	w.Binding(t.Context(), w.pod)
	if len(w.api.calls) > 0 {
		t.Fatalf("without a placeholder: %q", w.api.calls)
	}
	w.needs = []Need{{w.pod, []string{"n0"}}}
	w.look(t)
	w.api.calls, w.api.fail = nil, "delete"
	w.Binding(t.Context(), w.pod)
	if w.api.pods["placeholder-u1"] == nil || len(w.api.calls) != 1 {
		t.Fatalf("without the API server: %q", w.api.calls)
	}
	w.api.fail = ""
	w.Binding(t.Context(), w.pod)
	if w.api.pods["placeholder-u1"] != nil {
		t.Error("the placeholder is there when its pod gets a node")
	}
}
