// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kerf-gpu/kerf/sharing"
)

// migUnit is a GPU in MIG mode.
func migUnit(i int) Unit {
	return Unit{GPU: uuid(i), GiB: 79, InMIGMode: true, MIG: []Instances{{oneG, 7}, {"kerf.dev/mig-1g.10gb.me", 1},
		{"kerf.dev/mig-7g.80gb", 1}}}
}

// The profiles of GPUs in MIG mode are separate resources. They appear while the plugin runs, count the same whatever
// instances exist, and are answered by name only.
func TestInstancesAreResources(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	var mu sync.Mutex
	creating := errors.New("MIG instance 1g.10gb at 6 is being created")
	p := plugin(dir, k, func(o *Options) {
		o.MIGReadinessGate = func(context.Context) error { mu.Lock(); defer mu.Unlock(); return creating }
		o.preStart = 100 * time.Millisecond
	})
	set(t, p, Inventory{Units: gpus(0, 1), Memory: true, Percent: true, Whole: true, MIG: true})
	run(t, p)
	counts(t, k, sharing.ResourceGPU, 2, 2)
	set(t, p, Inventory{Units: append(gpus(0), migUnit(1), migUnit(2)), Percent: true, Whole: true, MIG: true})
	counts(t, k, oneG, 14, 14)
	counts(t, k, "kerf.dev/mig-1g.10gb.me", 2, 2)
	counts(t, k, "kerf.dev/mig-7g.80gb", 2, 2)
	counts(t, k, sharing.ResourceGPU, 1, 1)
	counts(t, k, sharing.ResourcePercent, 100, 100)

	admit(t, k, ref("a"), oneG, 1)
	if err := k.Prepare(t.Context(), ref("a")); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "is being created") {
		t.Errorf("before it is cut: %v", err)
	}
	admit(t, k, ref("b"), sharing.ResourceGPU, 1)
	if err := k.Prepare(t.Context(), ref("b")); err != nil {
		t.Errorf("another's cut is waited for: %v", err)
	}
	mu.Lock()
	creating = nil
	mu.Unlock()
	if err := k.Prepare(t.Context(), ref("a")); err != nil {
		t.Errorf("once it is cut: %v", err)
	}
	lost := append(gpus(0), migUnit(1), migUnit(2))
	lost[2].Lost = true
	set(t, p, Inventory{Units: lost, Percent: true, Whole: true, MIG: true})
	counts(t, k, oneG, 14, 7)
	counts(t, k, sharing.ResourceGPU, 1, 1)

	l := decide(view{resource: oneG, inv: Inventory{Units: []Unit{migUnit(0)}, MIG: true}, known: true})
	names, err := l.answer([]string{"u0007"})
	if want := []string{"kerf.dev/guard=armed", "kerf.dev/ask=mig-1g.10gb:1"}; err != nil ||
		!slices.Equal(names, want) {
		t.Errorf("%q: %v", names, err)
	}
}

// A container's ids of a profile that no GPU has any more stay known, so that it can be started again.
func TestHeldInstancesStayKnown(t *testing.T) {
	p := New(Options{Dir: t.TempDir()})
	p.held = map[sharing.ContainerRef]map[string][]string{ref("a"): {oneG: {"u0003"}}}
	inv := Inventory{Units: gpus(0), Memory: true}
	if made := p.grow(inv); len(made) != 1 || made[0].svc.resource != oneG {
		t.Fatalf("%+v", made)
	}
	if made := p.grow(inv); len(made) != 0 {
		t.Errorf("made twice: %+v", made)
	}
	p.post(inv, nil)
	for _, s := range p.Status() {
		if s.Resource == oneG && (!s.Advertised || s.IDs != 1 || s.Healthy != 1) {
			t.Errorf("%+v", s)
		}
	}
	for name, bad := range map[string][]Instances{
		"no profile": {{"kerf.dev/mig-", 1}}, "none": {{oneG, 0}}, "twice": {{oneG, 1}, {oneG, 2}},
	} {
		if err := p.SetInventory(Inventory{Units: []Unit{{GPU: uuid(0), MIG: bad}}}); !errors.Is(err,
			sharing.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
