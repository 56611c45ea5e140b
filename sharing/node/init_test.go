// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// An init container uses the grant of the app container that comes after it: its cap is what it requested, and nothing
// is reserved twice.
func TestAnInitContainerHandsOver(t *testing.T) {
	for name, asked := range map[string][]string{
		"less than the app": {"gpu-memory-gib:20"},
		"the same":          {"gpu-memory-gib:60"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newPodBench(t)
			b.start()
			b.run(b.app("other", "gpu:2")) // one GPU is left: what is booked twice finds no room
			initial, app := b.initc("p", "prepare", asked...), b.app("p", "gpu-memory-gib:60")
			if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{initial, app}); err != nil {
				t.Fatal(err)
			}
			grant := b.active(app, nil).Reservation
			if b.grant(initial) != nil {
				t.Fatal("the init container has its own grant")
			}
			gpu := grant.Placement[0].GPU
			i := b.run(initial)
			want := initial.Request.Memory
			if i.in.Grant != string(grant.ID) || i.in.Placement[0].Memory != want ||
				i.in.Requests[0] != initial.Requests[0] {
				t.Errorf("init container is injected with %+v", i.in)
			}
			g := b.active(app, i)
			if len(g.InForce()) != 1 || g.InForce()[0].Memory != want {
				t.Errorf("enforced %+v", g.InForce())
			}
			i.limits(map[sharing.GPURef]sharing.Bytes{gpu: want})
			b.VerifyAll(t.Context())
			i.limits(map[sharing.GPURef]sharing.Bytes{gpu: want})
			if held := b.State(t.Context()).GPUs[2].Granted; held != 60*sharing.GiB {
				t.Errorf("%v booked, want the app's 60GiB", held)
			}
			i.exit()
			a := b.run(app)
			if a.in.Grant != string(grant.ID) || b.active(app, a).ID != grant.ID ||
				len(b.active(app, a).Active.Part) != 0 {
				t.Errorf("handed over %+v, attachment %+v", a.in, b.active(app, a).Active)
			}
			a.limits(map[sharing.GPURef]sharing.Bytes{gpu: 60 * sharing.GiB})
			b.check()
			a.remove()
			b.PodRemoved("uid-p")
			b.eventually("the pod's grants end", func() bool { return b.grant(app) == nil })
		})
	}
}

// One that asks for more than the app container has a separate grant until the app container is created.
func TestALargerInitContainer(t *testing.T) {
	b := newPodBench(t)
	b.start()
	initial, app := b.initc("p", "convert", "gpu-memory-gib:70"), b.app("p", "gpu-memory-gib:10")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{initial, app}); err != nil {
		t.Fatal(err)
	}
	own := b.active(initial, nil).Reservation
	i := b.run(initial)
	i.limits(map[sharing.GPURef]sharing.Bytes{own.Placement[0].GPU: 70 * sharing.GiB})
	b.active(app, nil)
	i.exit()
	b.eventually("its attachment ends", func() bool { return b.grant(initial).Active == nil })
	if b.grant(initial) == nil {
		t.Error("its grant ended before the app container was made")
	}
	a := b.run(app)
	if b.grant(initial) != nil {
		t.Error("its grant outlives it")
	}
	a.limits(map[sharing.GPURef]sharing.Bytes{a.in.Placement[0].GPU: 10 * sharing.GiB})
	b.check()
	a.remove()
	b.gone("p")
}

// The app container is created before the agent sees the init container's empty cgroup, or while the driver still
// charges memory to it. Its grant ends all the same, once that is over.
func TestALargerInitContainerThatEndsLate(t *testing.T) {
	b := newPodBench(t)
	b.still()
	initial, app := b.initc("p", "convert", "gpu-memory-gib:70"), b.app("p", "gpu-memory-gib:10")
	i := b.run(initial)
	i.exit()
	b.caps.set(func() { b.caps.used = sharing.GiB })
	a := b.run(app)
	b.Reconcile(t.Context())
	b.active(initial, i)
	b.caps.set(func() { b.caps.used = 0 })
	b.Reconcile(t.Context())
	b.Reconcile(t.Context())
	if g := b.grant(initial); g != nil {
		t.Errorf("the init container's grant stays until the pod is gone: %+v", g)
	}
	b.active(app, a)
	b.check()
	// The pod's sandbox is created again: all of its containers run once more.
	a.exit()
	b.Reconcile(t.Context())
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{initial, app}); err != nil {
		t.Fatal(err)
	}
	i = b.run(initial)
	b.Reconcile(t.Context())
	b.active(initial, i)
	i.exit()
	b.run(app).remove()
	b.gone("p")
}

// Several init containers run one after the other on the same grant, and use the smallest grant that is large enough.
func TestTwoInitContainers(t *testing.T) {
	t.Run("the larger app first", func(t *testing.T) { twoInitContainers(t, false) })
	t.Run("the smaller app first", func(t *testing.T) { twoInitContainers(t, true) })
}

func twoInitContainers(t *testing.T, smallFirst bool) {
	b := newPodBench(t)
	b.still()
	first, second := b.initc("p", "first", "gpu-memory-gib:5"), b.initc("p", "second", "gpu-memory-gib:15",
		"gpu-percent:10")
	small, large := b.ask("p", "small", sharing.ContainerApp, "gpu-memory-gib:10"),
		b.ask("p", "large", sharing.ContainerApp, "gpu-memory-gib:30", "gpu-percent:50")
	order := []sharing.ContainerRequest{first, second, large, small}
	if smallFirst {
		order[2], order[3] = small, large
	}
	if err := b.ReservePod(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	if got := len(b.PodGrants()); got != 2 {
		t.Fatalf("%d grants", got)
	}
	one := b.run(first)
	b.active(small, one)
	one.limits(map[sharing.GPURef]sharing.Bytes{one.in.Placement[0].GPU: 5 * sharing.GiB})
	one.exit()
	two := b.run(second) // before anybody looked whether the first has ended
	b.active(large, two)
	two.limits(map[sharing.GPURef]sharing.Bytes{two.in.Placement[0].GPU: 15 * sharing.GiB})
	two.exit()
	apps := []*container{b.run(small), b.run(large)}
	b.active(small, apps[0])
	b.active(large, apps[1])
	if b.caps.count() != 2 {
		t.Errorf("limits on %d cgroups", b.caps.count())
	}
	b.check()
	for _, a := range apps {
		a.remove()
	}
	b.gone("p")
}

// The grant of another instance: a second init container on the grant that the first, larger one has.
func TestAnInitContainerUsesThatOfALargerOne(t *testing.T) {
	b := newPodBench(t)
	b.still()
	large, small := b.initc("p", "large", "gpu-memory-gib:70"), b.initc("p", "small", "gpu-memory-gib:60")
	app := b.app("p", "gpu-memory-gib:5")
	for name, order := range map[string][]sharing.ContainerRequest{
		"the larger first": {large, small, app}, "the smaller first": {small, large, app},
	} {
		t.Run(name, func(t *testing.T) {
			if err := b.ReservePod(t.Context(), order); err != nil {
				t.Fatal(err)
			}
			if got := len(b.PodGrants()); got != 2 {
				t.Errorf("%d grants: %v", got, containersOf(b.PodGrants()))
			}
			for _, ask := range order[:2] {
				c := b.run(ask)
				b.active(large, c)
				c.limits(map[sharing.GPURef]sharing.Bytes{c.in.Placement[0].GPU: ask.Request.Memory})
				c.exit()
			}
			b.run(app).exit()
			if b.grant(large) != nil && b.grant(large).Active == nil {
				t.Error("the init container's grant outlives it")
			}
			b.gone("p")
		})
	}
}

// A sidecar runs at the same time as later containers, so it has a separate grant.
func TestASidecarDoesNotLend(t *testing.T) {
	b := newPodBench(t)
	b.still()
	side := b.ask("p", "side", sharing.ContainerSidecar, "gpu-memory-gib:70")
	initial, app := b.initc("p", "prepare", "gpu-memory-gib:20"), b.app("p", "gpu-memory-gib:5")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{side, initial, app}); err != nil {
		t.Fatal(err)
	}
	if got := containersOf(b.PodGrants()); len(got) != 3 {
		t.Errorf("grants of %v", got)
	}
	s, i := b.run(side), b.run(initial)
	b.active(side, s)
	b.active(initial, i)
	i.exit()
	b.Reconcile(t.Context())
	a := b.run(app)
	b.active(side, s)
	s.limits(map[sharing.GPURef]sharing.Bytes{s.in.Placement[0].GPU: 70 * sharing.GiB})
	if b.grant(initial) != nil {
		t.Error("the init container's grant outlives it")
	}
	a.remove()
	s.remove()
	b.gone("p")
}

// What the init container is to use must be of the kind, the number of GPUs and the level that it asks for.
func TestWhatDoesNotCoverIsNotLent(t *testing.T) {
	b := newPodBench(t)
	b.still()
	app := b.app("p", "gpu-memory-gib:30", "gpu-percent:20")
	two := b.initc("p", "i", "gpu-memory-gib:20")
	two.Request.GPUs = 2
	level := b.initc("p", "i", "gpu-memory-gib:20")
	level.Request.MinLevel = sharing.LevelExclusive
	model := b.initc("p", "i", "gpu-memory-gib:20")
	model.Request.Models = []string{"*T4*"}
	uuid := b.initc("p", "i", "gpu-memory-gib:20")
	uuid.Request.UUIDs = []sharing.GPUID{b.gpus[2].UUID}
	tests := map[string]struct {
		ask sharing.ContainerRequest
		own bool // it gets a separate grant, else it is refused
	}{
		"a whole GPU":        {b.initc("p", "i", "gpu:1"), true},
		"more compute":       {b.initc("p", "i", "gpu-memory-gib:20", "gpu-percent:21"), true},
		"more, percent only": {b.initc("p", "i", "gpu-percent:50"), true},
		"two GPUs":           {two, true},
		"another GPU":        {uuid, true},
		"another model":      {model, false},
		"a stronger level":   {level, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := b.ReservePod(t.Context(), []sharing.ContainerRequest{tc.ask, app})
			if own := b.grant(tc.ask) != nil; (err == nil) != tc.own || own != tc.own {
				t.Errorf("own grant %v (%v), want %v", own, err, tc.own)
			}
			b.PodRemoved("uid-p")
			b.Reconcile(t.Context())
		})
	}
	b.gone()
}
