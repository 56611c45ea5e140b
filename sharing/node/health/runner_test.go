// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/faults"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/notify"
)

func grantOn(id string, gpu sharing.GPURef) ledger.Grant {
	return ledger.Grant{Reservation: ledger.Reservation{
		ID: ledger.GrantID(id), Owner: ledger.Owner{PodUID: "uid-" + id, Namespace: "ns", PodName: id},
		Placement: sharing.Placement{{GPU: gpu}},
	}, Active: &ledger.Attachment{Cgroup: "/none"}}
}

func gpuWith(id sharing.GPURef, h sharing.Health) ledger.View {
	return ledger.View{GPU: sharing.GPU{UUID: id.UUID, Health: h, HealthReason: "why"}}
}

// A grant is faulty while its GPU is unhealthy or lost. A GPU of unknown health is as it was.
func TestJudge(t *testing.T) {
	bad := []faults.Part{{GPU: sharing.GPURef{UUID: "a"}, Health: sharing.HealthLost, Reason: "why"}}
	r := &Runner{Table: NewTable(), faulty: map[sharing.GPURef]faults.Part{}}
	for i, c := range []struct {
		health sharing.Health
		want   []faults.Part
	}{
		{sharing.HealthUnknown, nil},
		{sharing.HealthSuspect, nil},
		{sharing.HealthLost, bad},
		{sharing.HealthUnknown, bad},
		{sharing.HealthOK, nil},
		{sharing.HealthUnknown, nil},
	} {
		got := r.judge(View{GPUs: []ledger.View{gpuWith(sharing.GPURef{UUID: "a"}, c.health),
			gpuWith(sharing.GPURef{UUID: "b"}, sharing.HealthOK)},
			Grants: []ledger.Grant{grantOn("1", sharing.GPURef{UUID: "a"}), grantOn("2", sharing.GPURef{UUID: "b"})}})
		if len(got) != 2 || !slices.Equal(got[0].Faulty, c.want) || got[1].Faulty != nil {
			t.Errorf("step %d: %+v", i, got)
		}
	}
}

// observer counts nothing.
type observer struct{}

func (observer) Evicted(string, error) {}
func (observer) Killed(string, error)  {}

// The pod of a faulty GPU is asked to end, listed, and evicted after its grace period. Another pod is left alone.
func TestRunnerEvicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var events []string
		start := time.Now()
		say := func(what string, ref sharing.ContainerRef) {
			events = append(events, fmt.Sprintf("%s %s %s", time.Since(start).Round(time.Second), what, ref.Pod))
		}
		view := View{
			Rule: config.Health{OnFault: config.FaultEvict, Grace: time.Minute},
			GPUs: []ledger.View{gpuWith(sharing.GPURef{UUID: "a"}, sharing.HealthLost),
				gpuWith(sharing.GPURef{UUID: "b"}, sharing.HealthOK)},
			Grants: []ledger.Grant{grantOn("1", sharing.GPURef{UUID: "a"}), grantOn("2", sharing.GPURef{UUID: "b"})},
		}
		r := &Runner{
			Log: slog.New(slog.DiscardHandler), Table: NewTable(), Endings: NewEndings(func() {}),
			Notify: &notify.Notifier{
				Observer: observer{},
				ToPod:    func(_ context.Context, ref sharing.ContainerRef, reason, _ string) { say(reason, ref) },
				Evictor:  func(_ context.Context, ref sharing.ContainerRef) error { say("evicted", ref); return nil },
			},
			View: func() View { return view }, Changed: func() <-chan struct{} { return nil },
		}
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(time.Second)
		if list := r.Endings.List(); len(list) != 1 || list[0].Ref.Pod != "1" ||
			list[0].Reason != "GPU a is lost: why" {
			t.Errorf("listed: %+v", list)
		}
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := []string{"0s GPUUnhealthy 1", "1m0s evicted 1", "1m0s GPUUnhealthy 1"}
		if !slices.Equal(events, want) {
			t.Errorf("events %q, want %q", events, want)
		}
	})
}
