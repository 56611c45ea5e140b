// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/console/consoletest"
	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

func memory(gib string) map[string]string { return map[string]string{sharing.ResourceMemory: gib} }

func TestNodeStates(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*model.Seen)
		want   string
	}{
		"ready":    {func(*model.Seen) {}, model.StateReady},
		"cordoned": {func(s *model.Seen) { s.Closed = true }, model.StateCordoned},
		"silent":   {func(s *model.Seen) { s.Silent = true }, model.StateSilent},
		"no agent": {func(s *model.Seen) { s.Status.Conditions = nil }, model.StateNotReady},
	} {
		s := model.Seen{Name: "n", Status: consoletest.Node("n", 1)}
		c.change(&s)
		if n := model.NodeOf(s, model.Typical{}); n.State != c.want {
			t.Errorf("%s: state %q, want %q", name, n.State, c.want)
		}
	}
}

func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*gpunode.GPU)
		want   string
	}{
		"none":      {func(*gpunode.GPU) {}, ""},
		"unhealthy": {func(g *gpunode.GPU) { g.Health, g.HealthReason = "unhealthy", "Xid 79" }, "unhealthy: Xid 79"},
		"cordoned":  {func(g *gpunode.GPU) { g.Cordoned = "fan (ann)" }, "cordoned: fan (ann)"},
		"MIG":       {func(g *gpunode.GPU) { g.MIGState = &gpunode.MIGState{Error: "in use"} }, "MIG: in use"},
	} {
		s := consoletest.Node("n", 1)
		c.change(&s.GPUs[0])
		if n := model.NodeOf(model.Seen{Name: "n", Status: s}, model.Typical{}); n.GPUs[0].Problem != c.want {
			t.Errorf("%s: problem %q, want %q", name, n.GPUs[0].Problem, c.want)
		}
	}
}

// Fragmentation is the part of typical requests that the free capacity cannot take.
func TestFragmentation(t *testing.T) {
	var wants []scheduler.PodRequest
	for i, gib := range []string{"10", "40", "40", "40"} {
		_, w, ok := model.PodOf(consoletest.Pod("a", fmt.Sprint(i), "", memory(gib)))
		if !ok {
			t.Fatal("the pod requests nothing")
		}
		wants = append(wants, w)
	}
	typical := typicalOf(wants)
	for held, want := range map[int]int{0: 0, 30: 0, 60: 75, 75: 100} {
		var holds []consoletest.Grant
		if held > 0 {
			holds = append(holds, consoletest.Grant{Pod: consoletest.Pod("a", "x", "n", memory("1")), GiB: held})
		}
		n := model.NodeOf(model.Seen{Name: "n", Status: consoletest.Node("n", 1, holds...)}, typical)
		if got := n.GPUs[0].Fragmentation; got != want {
			t.Errorf("%d GiB granted: fragmentation %d%%, want %d%%", held, got, want)
		}
	}
	if !typical.Equal(typicalOf(wants)) || typical.Equal(typicalOf(wants[1:])) {
		t.Error("Equal does not compare requests and counts")
	}
	var counted model.Requests
	for _, w := range wants {
		counted.Add(w, 2)
	}
	for _, w := range wants {
		counted.Add(w, -1)
	}
	if !typical.Equal(counted.Typical()) {
		t.Error("pods that are gone count")
	}
}

func typicalOf(wants []scheduler.PodRequest) model.Typical {
	var r model.Requests
	for _, w := range wants {
		r.Add(w, 1)
	}
	return r.Typical()
}

func TestPods(t *testing.T) {
	p := consoletest.Pod("a", "p", "", memory("10"))
	p.Message = "0/3 nodes are available"
	if got, _, ok := model.PodOf(p); !ok || !got.Pending || got.Reason != p.Message || got.Needs != "10GiB on one GPU" {
		t.Errorf("pending: %+v", got)
	}
	if got, _, ok := model.PodOf(consoletest.Pod("a", "p", "n", memory("10"))); !ok || got.Pending || got.Reason != "" {
		t.Errorf("running: %+v", got)
	}
	if got, _, ok := model.PodOf(consoletest.Pod("a", "p", "", memory("ten"))); ok || got.Problem == "" {
		t.Errorf("wrong request: %+v", got)
	}
	if _, _, ok := model.PodOf(consoletest.Pod("a", "p", "", nil)); ok {
		t.Error("a pod without a request is one of Kerf's")
	}
}

// A scope removes every name of other namespaces, and no amount.
func TestScope(t *testing.T) {
	s := consoletest.Node("n", 1, consoletest.Grant{Pod: consoletest.Pod("secret", "secret-pod", "n", nil), GiB: 10},
		consoletest.Grant{Pod: consoletest.Pod("mine", "mine", "n", nil), GiB: 20})
	s.Config = &gpunode.Config{Errors: []string{"secret error"}}
	s.GPUs[0].Cordoned = "kept for pod secret/secret-pod (kerf-defrag)"
	n := model.NodeOf(model.Seen{Name: "n", Status: s}, model.Typical{})
	before, _ := json.Marshal(n)
	seen := model.Scope{Namespaces: map[string]bool{"mine": true}}.Node(n)
	text, err := json.Marshal(seen)
	if err != nil || strings.Contains(string(text), "secret") || !strings.Contains(string(text), `"pod":"mine"`) {
		t.Errorf("seen: %s: %v", text, err)
	}
	if p := seen.GPUs[0].Problem; p != "cordoned: kept for pod of another namespace (kerf-defrag)" {
		t.Errorf("problem %q", p)
	}
	if len(seen.GPUs[0].Shares) != 2 || seen.GPUs[0].Shares[1].Memory != n.GPUs[0].Shares[1].Memory {
		t.Errorf("amounts changed: %+v", seen.GPUs[0].Shares)
	}
	if after, _ := json.Marshal(n); !bytes.Equal(after, before) {
		t.Error("the scope changed the node of others")
	}
	if (model.Scope{}).Sees("") || !(model.Scope{All: true}).Sees("") {
		t.Error("processes belong to viewers of everything")
	}
}

func TestTextOfAScope(t *testing.T) {
	mine := model.Scope{Namespaces: map[string]bool{"mine": true}}
	for text, want := range map[string]string{
		"":                      "",
		"kept for pod mine/a":   "kept for pod mine/a",
		"kept for pod other/a":  "kept for pod of another namespace",
		"Pod other/a, pod c/d.": "Pod of another namespace, pod of another namespace.",
		"Xid 79: I/O error":     "Xid 79: I/O error",
	} {
		if got := mine.Text(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
		if got := (model.Scope{All: true}).Text(text); got != text {
			t.Errorf("a viewer of everything gets %q for %q", got, text)
		}
	}
}

// Whatever changes, and however rarely a viewer asks: it has the store's objects.
func TestStoreProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := model.NewStore()
	viewers := make([]viewer, 3)
	for range 4000 {
		key := fmt.Sprintf("node/%d", r.IntN(40))
		if r.IntN(3) == 0 {
			s.Remove(key)
		} else {
			s.Set(key, r.IntN(5))
		}
		v := &viewers[r.IntN(len(viewers))]
		v.ask(s)
		v.compare(t, s)
	}
}

// A viewer that is behind by more removals than the store remembers starts again.
func TestStoreForgets(t *testing.T) {
	s := model.NewStore()
	var v viewer
	s.Set("node/stays", 1)
	v.ask(s)
	for i := range 10100 {
		key := fmt.Sprintf("node/%d", i)
		s.Set(key, 1)
		s.Remove(key)
	}
	if _, _, reset, _ := s.Since(v.at, nil); !reset {
		t.Error("no reset after forgotten removals")
	}
	v.ask(s)
	v.compare(t, s)
}

// A new viewer of a large store gets it in several answers, also after many removals.
func TestStorePages(t *testing.T) {
	s := model.NewStore()
	for i := range 30000 {
		s.Set(fmt.Sprintf("node/%d", i), i)
	}
	for i := range 11000 {
		s.Remove(fmt.Sprintf("node/%d", 2*i))
	}
	if _, _, _, more := s.Since(model.Cursor{}, nil); !more {
		t.Error("the store came in one answer")
	}
	var v viewer
	v.ask(s)
	v.compare(t, s)
}

type viewer struct {
	at  model.Cursor
	has map[string]string
}

func (v *viewer) ask(s *model.Store) {
	for more := true; more; {
		var changed []model.Item
		var reset bool
		if changed, v.at, reset, more = s.Since(v.at, nil); reset || v.has == nil {
			v.has = map[string]string{}
		}
		for _, i := range changed {
			if i.Body == nil {
				delete(v.has, i.Key)
			} else {
				v.has[i.Key] = string(i.Body)
			}
		}
	}
}

func (v *viewer) compare(t *testing.T, s *model.Store) {
	t.Helper()
	n := 0
	s.Each(func(i model.Item) {
		n++
		if v.has[i.Key] != string(i.Body) {
			t.Fatalf("%s: has %q, want %q", i.Key, v.has[i.Key], i.Body)
		}
	})
	if n != len(v.has) || n != s.Len() {
		t.Fatalf("viewer has %d objects, the store %d (%d)", len(v.has), n, s.Len())
	}
}
