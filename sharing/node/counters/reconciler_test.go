// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/lists"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

// world is a node with grants x and y, and their backend.
type world struct {
	view      View
	found     []libkerf.Finding
	looks     []lists.Observation
	level     bool // the level of a grant changes
	compared  []ledger.GrantID
	uncounted int
}

func (w *world) View() View { return w.view }
func (w *world) Uncounted() { w.uncounted++ }

func (w *world) Compare(id ledger.GrantID, _ map[sharing.GPURef]sharing.Bytes) bool {
	w.compared = append(w.compared, id)
	return w.level
}

func (w *world) Upkeep(_ context.Context, _ []libkerf.Attachment, ask func([]sharing.GPURef) []lists.Observation) (
	[]libkerf.Finding, bool) {
	w.looks = ask([]sharing.GPURef{{UUID: "a"}})
	return w.found, false
}

func (w *world) Cgroup(int) (string, error)  { return "", sharing.ErrNotFound }
func (w *world) Start(int) (uint64, error)   { return 0, sharing.ErrNotFound }
func (w *world) Open(int, int) (bool, error) { return false, sharing.ErrNotFound }
func (w *world) Now() uint64                 { return 1 }

func (w *world) Processes(context.Context, sharing.GPURef) ([]lists.Use, error) {
	return []lists.Use{{PID: 7, Used: sharing.GiB, Known: true}}, nil
}

// Findings are shown while they last, and those of a grant that has ended are not.
func TestReconcile(t *testing.T) {
	w := &world{view: View{Grants: []libkerf.Attachment{{ID: "x"}, {ID: "y"}}}}
	announced, shown := 0, conditions.New(func() {})
	r := &Reconciler{
		Log: slog.New(slog.DiscardHandler), Backend: w, Lists: lists.New(w), Conditions: shown, Node: w,
		Announce: func() { announced++ },
	}
	r.Reconcile(t.Context())
	if !errors.Is(w.looks[0].Err, sharing.ErrUnavailable) {
		t.Errorf("without a driver: %+v", w.looks)
	}
	w.view.Driver = w
	w.found = []libkerf.Finding{{ID: "x", Uncounted: "process 7 does not count", New: 2}, {ID: "y", Rejected: true}}
	r.Reconcile(t.Context())
	if w.looks[0].Err != nil || len(w.looks[0].Lines) != 1 || w.uncounted != 2 || announced != 0 ||
		!slices.Equal(w.compared, []ledger.GrantID{"x", "y"}) {
		t.Errorf("%+v, %d uncounted, announced %d times, compared %v", w.looks, w.uncounted, announced, w.compared)
	}
	all := shown.Sentences(conditions.Warns)
	if len(all) != 2 || !slices.Contains(all, "grant x: process 7 does not count") {
		t.Errorf("shown: %q", all)
	}
	w.view.Grants, w.found, w.level = w.view.Grants[:1], []libkerf.Finding{{ID: "x"}}, true
	r.Reconcile(t.Context())
	if diff := cmp.Diff([]string(nil), shown.Sentences(conditions.Warns)); diff != "" || announced != 1 {
		t.Errorf("%s, announced %d times", diff, announced)
	}
}
