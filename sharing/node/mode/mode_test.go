// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

const keepMode = time.Minute

// world is a node with two GPUs, and its MIG manager. A GPU in MIG mode has one instance, "1g".
type world struct {
	mu       sync.Mutex
	gpus     []ledger.View
	states   []mig.State
	granted  map[sharing.GPUID][]mig.Granted
	faults   map[sharing.GPUID][]mig.Granted
	fail     error
	reserved []string
	warned   string
	results  []Result
	changed  chan struct{}
	*Switcher
}

func newWorld() *world {
	w := &world{granted: map[sharing.GPUID][]mig.Granted{}, faults: map[sharing.GPUID][]mig.Granted{},
		changed: make(chan struct{})}
	for i := range 2 {
		id := sharing.GPUID(fmt.Sprintf("GPU-%d", i))
		w.gpus = append(w.gpus, ledger.View{GPU: sharing.GPU{UUID: id, Index: i, Memory: 80 * sharing.GiB,
			Health: sharing.HealthOK, Overcommit: sharing.Overcommit{Memory: 1, Compute: 1}}})
		w.states = append(w.states, mig.State{GPU: id, ModeSwitchable: true})
	}
	w.Switcher = New(slog.New(slog.DiscardHandler), w, func() string { return "7" })
	w.SetManager(w)
	return w
}

func (w *world) View(f func(Snapshot)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.picture())
}

func (w *world) picture() Snapshot {
	return Snapshot{Ready: true, PodsReady: true, MinModeTime: keepMode, GPUs: slices.Clone(w.gpus), Capacity: w}
}

func (w *world) ReservePod(_ context.Context, asks []sharing.ContainerRequest) error {
	w.reserved = append(w.reserved, asks[0].Ref.Pod)
	w.Forget(asks[0].Ref.PodUID)
	return nil
}

func (w *world) Changed() <-chan struct{} { return w.changed }

func (w *world) Announce() {}

func (w *world) Warn(sentence string) { w.warned = sentence }

func (w *world) Switched(_ context.Context, r Result) { w.results = append(w.results, r) }

func (w *world) Granted(gpu sharing.GPUID) []mig.Granted { return w.granted[gpu] }

func (w *world) Faults(gpu sharing.GPUID) []mig.Granted { return w.faults[gpu] }

func (w *world) Free(string, choice.Without) []allocator.GPUState {
	var out []allocator.GPUState
	for _, v := range w.gpus {
		out = append(out, allocator.GPUState{GPU: v.GPU, FreeMemory: v.FreeMemory, FreePercent: v.FreePercent,
			InUse: v.Grants > 0, ModeSwitchable: true, Levels: []sharing.Level{sharing.LevelExclusive,
				sharing.LevelDriver}})
	}
	return out
}

func (w *world) Rules(*allocator.GPUState, string) []sharing.Backend {
	return []sharing.Backend{sharing.BackendDriver, sharing.BackendReactive}
}

func (w *world) Would(gpu sharing.GPUID, profile string, _ int, granted []mig.Granted) mig.Candidate {
	if profile != "1g" || len(granted) > 0 {
		return mig.Candidate{Detail: "is full"}
	}
	return mig.Candidate{Share: sharing.Share{GPU: sharing.GPURef{UUID: gpu},
		MIG: sharing.Instance{Profile: "1g", Size: 1}}}
}

func (w *world) ModeSwitchable(gpu sharing.GPUID) bool {
	return slices.ContainsFunc(w.states, func(s mig.State) bool { return s.GPU == gpu && s.ModeSwitchable })
}

func (w *world) SwitchMode(_ context.Context, gpu sharing.GPUID, on bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail == nil {
		w.set(gpu, func(v *ledger.View, s *mig.State) { s.On, s.ModeSwitchedAt = on, time.Now() })
	}
	return w.fail
}

func (w *world) States() []mig.State { return slices.Clone(w.states) }

func (w *world) set(gpu sharing.GPUID, f func(*ledger.View, *mig.State)) {
	for i := range w.gpus {
		if w.gpus[i].GPU.UUID == gpu {
			f(&w.gpus[i], &w.states[i])
		}
	}
}

// inventory takes the inventory after a switch.
func (w *world) inventory() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var gpus []sharing.GPU
	for i := range w.gpus {
		w.gpus[i].GPU.MIG = w.states[i].On
		gpus = append(gpus, w.gpus[i].GPU)
	}
	w.TookInventory(gpus, nil)
}

func instance() sharing.Request { return sharing.Request{Kind: sharing.KindMIG, MIG: "1g", GPUs: 1} }

func share() sharing.Request {
	return sharing.Request{Kind: sharing.KindShared, Memory: 4 * sharing.GiB, GPUs: 1}
}

func pod(name string, requests ...sharing.Request) Need {
	ref := sharing.ContainerRef{PodUID: "uid-" + name, Namespace: "ns", Pod: name}
	return Need{Who: "pod ns/" + name, Since: time.Unix(1e9, 0), Requests: requests,
		Containers: []sharing.ContainerRequest{{Ref: ref}}}
}

func full() error { return &allocator.NoFit{Summary: "not enough free"} }

func (w *world) note(n Need) error {
	return w.Record(n.Containers[0].Ref.PodUID, full(), func() Need { return n })
}

// What keeps a GPU in its mode, first the grants on it, and what becomes of it.
func TestOutlook(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, tt := range map[string]struct {
		set  func(w *world, v *ledger.View, s *mig.State)
		want Outlook
	}{
		"idle": {func(*world, *ledger.View, *mig.State) {}, Outlook{To: MIG}},
		"idle in MIG mode": {func(_ *world, v *ledger.View, s *mig.State) { v.GPU.MIG, s.On = true, true },
			Outlook{To: Shared}},
		"not on demand": {func(_ *world, _ *ledger.View, s *mig.State) { s.ModeSwitchable = false }, Outlook{}},
		"not there":     {func(w *world, _ *ledger.View, _ *mig.State) { w.gpus = w.gpus[1:] }, Outlook{}},
		"granted": {func(w *world, v *ledger.View, s *mig.State) {
			v.Grants, v.GPU.Cordoned, s.Busy = 2, "c", "is held by process 7"
			w.granted[s.GPU] = []mig.Granted{{Who: "pod a/b"}, {Who: "pod a/b"}, {Who: "pod a/c"}}
		}, Outlook{To: MIG, Stays: "is held by pod a/b, pod a/c"}},
		"unhealthy": {func(_ *world, v *ledger.View, _ *mig.State) { v.GPU.Health = sharing.HealthUnhealthy },
			Outlook{To: MIG, Stays: "is unhealthy"}},
		"cordoned": {func(_ *world, v *ledger.View, _ *mig.State) { v.GPU.Cordoned = "by hand" },
			Outlook{To: MIG, Stays: "is cordoned: by hand"}},
		"a fault": {func(w *world, _ *ledger.View, s *mig.State) { w.faults[s.GPU] = []mig.Granted{{Who: "a fault"}} },
			Outlook{To: MIG, Stays: "has an instance with a fault"}},
		"in use": {func(_ *world, _ *ledger.View, s *mig.State) { s.Busy = "is held by process 7" },
			Outlook{To: MIG, Stays: "is held by process 7"}},
		"old list": {func(_ *world, _ *ledger.View, s *mig.State) { s.On = true },
			Outlook{To: MIG, Stays: "is being looked at"}},
		"failed": {func(w *world, _ *ledger.View, s *mig.State) {
			w.barred[s.GPU] = bar{until: now.Add(time.Second), why: "IN_USE"}
		}, Outlook{To: MIG, Stays: "could not be changed, and is tried again: IN_USE"}},
		"failed before": {func(w *world, _ *ledger.View, s *mig.State) {
			w.barred[s.GPU] = bar{until: now,
				why: "IN_USE"}
		}, Outlook{To: MIG}},
		"switches": {func(w *world, _ *ledger.View, s *mig.State) {
			w.switching[s.GPU] = change{on: true, who: "pod a/b"}
		}, Outlook{To: MIG, For: "pod a/b"}},
	} {
		w := newWorld()
		tt.set(w, &w.gpus[0], &w.states[0])
		got := w.Outlooks(w.picture(), map[sharing.GPUID]mig.State{"GPU-0": w.states[0]}, now)["GPU-0"]
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
		if ready := got.Ready(); (ready == got.To) != (got.For == "" && got.Stays == "") && got.To != None {
			t.Errorf("%s: ready %q", name, ready)
		}
	}
}

// Each request takes room from those after it.
func TestFits(t *testing.T) {
	for name, tt := range map[string]struct {
		need     Need
		on       []sharing.GPUID // in MIG mode
		switched []sharing.GPUID
		want     bool
	}{
		"no GPU in MIG mode": {pod("a", instance()), nil, nil, false},
		"one in MIG mode":    {pod("a", instance()), []sharing.GPUID{"GPU-0"}, nil, true},
		"one that switches":  {pod("a", instance()), nil, []sharing.GPUID{"GPU-1"}, true},
		"two on one":         {pod("a", instance(), instance()), nil, []sharing.GPUID{"GPU-1"}, false},
		"two on two": {pod("a", instance(), instance()), nil, []sharing.GPUID{"GPU-0", "GPU-1"},
			true},
		"another profile": {pod("a", sharing.Request{Kind: sharing.KindMIG, MIG: "2g", GPUs: 1}), nil,
			[]sharing.GPUID{"GPU-0"}, false},
		"another GPU": {pod("a", sharing.Request{Kind: sharing.KindMIG, MIG: "1g", GPUs: 1,
			UUIDs: []sharing.GPUID{"GPU-0"}}), nil, []sharing.GPUID{"GPU-1"}, false},
		"a share, none free": {pod("a", share()), []sharing.GPUID{"GPU-0", "GPU-1"}, nil, false},
		"a share, one switches": {pod("a", share()), []sharing.GPUID{"GPU-0", "GPU-1"},
			[]sharing.GPUID{"GPU-0"}, true},
		"an instance, then a share on it": {pod("a", instance(), share()), []sharing.GPUID{"GPU-0", "GPU-1"},
			[]sharing.GPUID{"GPU-0"}, false},
		"more than a GPU has": {pod("a", sharing.Request{Kind: sharing.KindShared, Memory: 81 * sharing.GiB, GPUs: 1}),
			[]sharing.GPUID{"GPU-0"}, []sharing.GPUID{"GPU-0"}, false},
	} {
		w := newWorld()
		for _, id := range tt.on {
			w.set(id, func(v *ledger.View, s *mig.State) { v.GPU.MIG, s.On = true, true })
		}
		if got := w.at(w.picture()).fits(tt.need, tt.switched); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Level driver is assumed of a GPU that was never seen out of MIG mode; else what it gave there counts.
func TestLevelOutOfMIGMode(t *testing.T) {
	w := newWorld()
	w.gpus[0].GPU.MIG = true
	need := pod("a", share())
	need.Requests[0].MinLevel = sharing.LevelDriver
	fits := func() bool { return w.at(w.picture()).fits(need, []sharing.GPUID{"GPU-0"}) }
	if !fits() {
		t.Error("not known before")
	}
	plain := w.gpus[0].GPU
	plain.MIG = false
	w.TookInventory([]sharing.GPU{plain},
		map[sharing.GPURef]choice.Report{{UUID: "GPU-0"}: {sharing.BackendReactive: {Answer: choice.Supported}}})
	if fits() {
		t.Error("it gave no level driver before")
	}
}

// A GPU that switches for a pod takes no grant until the next inventory; then the pod is reserved for, and forgotten.
func TestSwitch(t *testing.T) {
	w := newWorld()
	if err := w.note(pod("a", instance())); err == nil || strings.Contains(err.Error(), "could change") {
		t.Errorf("while a GPU is about to switch: %v", err)
	}
	w.Switch(t.Context())
	if len(w.results) != 1 || w.results[0].Err != nil || w.results[0].Reason != reasonSwitched ||
		!strings.HasPrefix(w.results[0].Message, "GPU 0 changes to MIG mode for pod ns/a, which took ") {
		t.Fatalf("%+v", w.results)
	}
	if w.Switching("GPU-0") == "" || len(w.Pending()) != 1 {
		t.Errorf("before the next inventory: %q, %q", w.Switching("GPU-0"), w.Pending())
	}
	w.grant(t.Context())
	if len(w.reserved) > 0 {
		t.Errorf("reserved for %q", w.reserved)
	}
	w.inventory()
	if p := w.Pending(); len(p) > 0 {
		t.Errorf("after it: %q", p)
	}
	w.grant(t.Context())
	if !slices.Equal(w.reserved, []string{"a"}) || len(w.needs) > 0 {
		t.Errorf("reserved for %q, needs %v", w.reserved, w.needs)
	}
	w.Switch(t.Context())
	if len(w.results) != 1 {
		t.Error("a GPU switched without a request")
	}
	// The other way, the mode is kept for a while, and the other GPU has a grant.
	w.gpus[1].Grants, w.granted["GPU-1"] = 1, []mig.Granted{{Who: "pod b/c"}}
	err := w.note(pod("b", share()))
	if err == nil || !strings.Contains(err.Error(), "GPU 0 changed its mode at ") {
		t.Errorf("%v", err)
	}
	w.tell(time.Now())
	if !strings.HasPrefix(w.warned, "pod ns/b waits for a GPU to change its MIG mode: GPU 0 changed") {
		t.Errorf("warned %q", w.warned)
	}
	if err := w.Record("uid-b", nil, nil); err != nil || len(w.needs) > 0 {
		t.Errorf("%v, needs %v", err, w.needs)
	}
	w.tell(time.Now())
	if w.warned != "" {
		t.Errorf("warned %q", w.warned)
	}
}

// A switch that fails leaves the GPU alone for a while, each time for longer.
func TestSwitchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.fail = errors.New("IN_USE")
		w.states[1].ModeSwitchable = false
		_ = w.note(pod("a", instance()))
		for i, pause := range []time.Duration{firstPause, 2 * firstPause, 4 * firstPause} {
			w.Switch(t.Context())
			w.Switch(t.Context())
			if len(w.results) != i+1 || w.results[i].Reason != reasonNotSwitched || w.Switching("GPU-0") != "" {
				t.Fatalf("%+v", w.results)
			}
			if err := w.note(pod("a", instance())); !strings.Contains(err.Error(), "IN_USE") {
				t.Error(err)
			}
			time.Sleep(pause)
		}
		w.fail = nil
		w.Switch(t.Context())
		if len(w.results) != 4 || w.results[3].Err != nil || len(w.barred) > 0 {
			t.Errorf("%+v", w.results)
		}
	})
	if got := (bar{pause: lastPause}).again(time.Time{}, errors.New("x")).pause; got != lastPause {
		t.Errorf("pause %s", got)
	}
}

// Only a refusal for want of room is remembered, and only where demand may switch a GPU.
func TestNote(t *testing.T) {
	other := errors.New("other")
	w := newWorld()
	if err := w.Record("u", other, nil); !errors.Is(err, other) || len(w.needs) > 0 {
		t.Errorf("%v, needs %v", err, w.needs)
	}
	first := pod("a", instance())
	later := first
	later.Since = first.Since.Add(time.Hour)
	_, _ = w.note(first), w.note(later)
	if got := w.needs["uid-a"]; !got.Since.Equal(first.Since) {
		t.Errorf("waits since %s", got.Since)
	}
	w.Forget("uid-a")
	if len(w.needs) > 0 {
		t.Errorf("needs %v", w.needs)
	}
	w.states[0].ModeSwitchable, w.states[1].ModeSwitchable = false, false
	_ = w.note(first)
	w.SetManager(nil)
	_ = w.note(first)
	if len(w.needs) > 0 || w.ModeSwitchable("GPU-0") {
		t.Errorf("needs %v", w.needs)
	}
}

// A process waits while a GPU switches for it, and returns at once where none will.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		ctx, stop := context.WithCancel(t.Context())
		loop := make(chan error)
		go func() { loop <- w.Run(ctx) }()
		tries := 0
		need := func() Need {
			return Need{Who: "process 1", Since: time.Now(),
				Requests: []sharing.Request{instance()}}
		}
		err := w.Await(t.Context(), need, func() error {
			if tries++; tries < 3 {
				return full()
			}
			return nil
		})
		if err != nil || tries != 3 || len(w.needs) > 0 {
			t.Errorf("%v after %d tries, needs %v", err, tries, w.needs)
		}
		stop()
		if err := <-loop; err != nil {
			t.Error(err)
		}
		w.inventory()
		for i := range w.gpus {
			w.gpus[i].Grants, w.granted[w.gpus[i].GPU.UUID] = 1, []mig.Granted{{Who: "grant x"}}
		}
		need = func() Need { return Need{Who: "process 1", Requests: []sharing.Request{share()}} }
		start := time.Now()
		err = w.Await(t.Context(), need, full)
		if err == nil || !strings.Contains(err.Error(), "GPU 0 is held by grant x") || time.Since(start) > 0 {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

// TestExpects: a pod waits while a GPU is about to switch for it, and not while grants keep the GPUs.
func TestExpects(t *testing.T) {
	w := newWorld()
	need := func() Need {
		return Need{Who: "pod ns/p", Since: time.Now(), Requests: []sharing.Request{instance()}}
	}
	if err := w.Record("uid-p", full(), need); err == nil || !w.Expects("uid-p") || w.Expects("uid-q") {
		t.Errorf("%v: p %t, q %t", err, w.Expects("uid-p"), w.Expects("uid-q"))
	}
	for i := range w.gpus {
		w.gpus[i].Grants, w.granted[w.gpus[i].GPU.UUID] = 1, []mig.Granted{{Who: "grant x"}}
	}
	if w.Expects("uid-p") {
		t.Error("all GPUs are in use")
	}
}
