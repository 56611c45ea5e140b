// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
	"github.com/kerf-gpu/kerf/sharing/node/observe"
)

// node is a node with one GPU and one grant, whose process 7 uses a quarter of the GPU's time.
type node struct{ samples, seen int }

func (n *node) Sample(context.Context) observe.Sample {
	n.samples++
	return observe.Sample{GPUs: map[sharing.GPURef]observe.Reading{{UUID: "a"}: {}},
		PIDs: map[ledger.GrantID][]int{"k-1": {7}}}
}

func (n *node) See(context.Context, observe.Sample) { n.seen++ }

func (n *node) ProcessTime(context.Context, sharing.GPURef, time.Time) (sharing.TimeUse, error) {
	return sharing.TimeUse{Rows: map[int]sharing.TimeRow{7: {SM: 25}, 8: {SM: 50}}}, nil
}

func (n *node) Power(context.Context, sharing.GPURef) (float64, error) { return 100, nil }

// The meter takes a sample every ten seconds. It writes records every quarter of an hour, and at its end.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		var written []audit.Entry
		v := View{Driver: n, GPUs: []sharing.GPU{{UUID: "a"}}, Grants: []ledger.Grant{{
			Reservation: ledger.Reservation{ID: "k-1",
				Placement: sharing.Placement{{GPU: sharing.GPURef{UUID: "a"}, Percent: sharing.FullGPU / 2}}},
			Active: &ledger.Attachment{},
		}}}
		m := New(Options{
			Log: slog.New(slog.DiscardHandler), Conditions: conditions.New(func() {}), Sampler: n, Watcher: n,
			View:   func() View { return v },
			Notify: &notify.Notifier{Audit: func(e audit.Entry) { written = append(written, e) }},
		})
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute+time.Second)
		defer cancel()
		if err := m.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if n.samples != 240 || n.seen != n.samples {
			t.Errorf("%d samples, %d seen", n.samples, n.seen)
		}
		seconds, busy := 0.0, 0.0
		for _, e := range written {
			for _, r := range e.Usage {
				seconds, busy = seconds+r.Seconds, busy+r.Busy
			}
		}
		if len(written) != 3 || seconds != 2390 || busy != 2390/4.0 {
			t.Errorf("%d records, %v seconds, %v busy", len(written), seconds, busy)
		}
	})
}

// The GPU time of a grant is that of its processes. One doubtful row makes all of it doubtful.
func TestBusyBy(t *testing.T) {
	owners := map[int]ledger.GrantID{1: "a", 2: "a", 3: "b"}
	told := sharing.TimeUse{Rows: map[int]sharing.TimeRow{1: {SM: 10}, 2: {SM: 20}, 3: {SM: 30}, 4: {SM: 40}}}
	if diff := cmp.Diff(map[ledger.GrantID]int{"a": 30, "b": 30}, busyBy(told, owners)); diff != "" {
		t.Error(diff)
	}
	told.Doubt = []int{2, 4}
	if diff := cmp.Diff(map[ledger.GrantID]int{"a": -1, "b": 30}, busyBy(told, owners)); diff != "" {
		t.Error(diff)
	}
}

func TestFewLabels(t *testing.T) {
	all := map[string]string{"team": "x", "pod-template-hash": "1", "batch.kubernetes.io/controller-uid": "2"}
	if diff := cmp.Diff(map[string]string{"team": "x"}, fewLabels(all)); diff != "" {
		t.Error(diff)
	}
	for c := range 2 * mostLabels {
		maps.Copy(all, map[string]string{string(rune('a' + c)): ""})
	}
	if got := fewLabels(all); len(got) != mostLabels {
		t.Errorf("%d labels", len(got))
	}
}
