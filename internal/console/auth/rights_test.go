// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/console/auth"
)

// watched is a viewer ann who may list the pods of namespace a.
type watched struct {
	*testing.T

	api    *server
	clock  *clock
	all    *auth.Cluster
	viewer *auth.Viewer
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{T: t, clock: newClock(), api: &server{tokens: map[string]string{"t": "ann"},
		rights: map[string][]string{"ann": {"gpunodes/", "pods/a"}}}}
	w.all = auth.NewCluster(w.api.create, w.clock.now)
	w.login()
	return w
}

func (w *watched) login() {
	w.Helper()
	if w.viewer = w.all.Viewer(with(visit(w.all, login("t")).Cookies())); w.viewer == nil {
		w.Fatal("no viewer")
	}
}

// sees reports whether the viewer sees namespace a after a while.
func (w *watched) sees(after time.Duration) bool {
	w.clock.at = w.clock.at.Add(after)
	scope, err := w.viewer.Scope(w.Context(), []string{"a"})
	return err == nil && scope.Sees("a")
}

// Rights, groups and token are asked again after a minute: a viewer who loses them sees nothing more.
func TestRightsEnd(t *testing.T) {
	w := newWatched(t)
	if !w.sees(0) {
		t.Fatal("the viewer does not see namespace a")
	}
	before := w.api.asked
	if !w.sees(0) || w.api.asked != before {
		t.Error("the answer is not kept")
	}
	for _, c := range []struct {
		name   string
		ann    []string
		groups []string
		sees   bool
	}{
		{"without the right to list pods", []string{"gpunodes/"}, nil, false},
		{"without the right to list GPUNodes", []string{"pods/a"}, nil, false},
		{"with both rights again", []string{"gpunodes/", "pods/a"}, nil, true},
		{"in a group with the right", []string{"gpunodes/"}, []string{"team"}, true},
		{"after leaving the group", []string{"gpunodes/"}, nil, false},
	} {
		w.api.rights = map[string][]string{"ann": c.ann, "team": {"pods/a"}}
		w.api.groups = c.groups
		if got := w.sees(2 * time.Minute); got != c.sees {
			t.Errorf("%s: sees %t, want %t", c.name, got, c.sees)
		}
	}
}

// Token and session end what a stream sees.
func TestSessionEnds(t *testing.T) {
	w := newWatched(t)
	if !w.sees(7*time.Hour) || w.sees(2*time.Hour) {
		t.Error("a stream sees the namespace after the end of its session, or not before it")
	}
	if w.login(); !w.sees(0) {
		t.Error("the viewer of a new session does not see the namespace")
	}
	w.api.tokens = nil
	if w.sees(2 * time.Minute) {
		t.Error("the viewer sees the namespace without a token")
	}
	w.api.tokens = map[string]string{"t": "ann"}
	if w.api.fails = true; w.sees(2 * time.Minute) {
		t.Error("the viewer sees the namespace while the API server is away")
	}
}

// Events need their own right. The answer is kept for a minute, as that for pods.
func TestRightToEvents(t *testing.T) {
	api := &server{tokens: map[string]string{"t": "ann"}, rights: map[string][]string{"ann": {"gpunodes/", "pods/a",
		"pods/b", "events/a"}}}
	c := newClock()
	a := auth.NewCluster(api.create, c.now)
	v := a.Viewer(with(visit(a, login("t")).Cookies()))
	for namespace, want := range map[string]bool{"a": true, "b": false} {
		if may, err := v.Events(t.Context(), namespace); err != nil || may != want {
			t.Errorf("namespace %s: %t, %v", namespace, may, err)
		}
	}
	before := api.asked
	if may, err := v.Events(t.Context(), "a"); err != nil || !may || api.asked != before {
		t.Errorf("the answer is not kept: %t, %v", may, err)
	}
	api.rights["ann"] = []string{"gpunodes/", "pods/a"}
	c.at = c.at.Add(2 * time.Minute)
	if may, err := v.Events(t.Context(), "a"); err != nil || may {
		t.Errorf("without the right: %t, %v", may, err)
	}
}
