// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
	"github.com/kerf-gpu/kerf/sharing/node/place"
)

// One pod from its sandbox to its end: reserved, injected, activated, restarted in place, forgotten.
func TestAPodFromSandboxToEnd(t *testing.T) {
	b := newPodBench(t)
	b.start()
	ask := b.app("p", "gpu-memory-gib:10", "gpu-percent:25")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{ask}); err != nil {
		t.Fatal(err)
	}
	grant := b.active(ask, nil).Reservation
	if grant.Owner.PodUID != "uid-p" || grant.Owner.Namespace != "ns" || grant.Owner.PodName != "p" ||
		grant.Level != sharing.LevelDriver {
		t.Errorf("grant %+v", grant)
	}
	c := b.inject(ask)
	gpu := grant.Placement[0].GPU
	want := sharing.Injection{
		Grant: string(grant.ID), Placement: grant.Placement, Level: sharing.LevelDriver, Requests: ask.Requests,
		Annotation: c.in.Annotation,
		Env: map[string]string{
			"KERF_GRANT": string(grant.ID), "KERF_GPUS": gpu.String(), "KERF_MEMORY_BYTES": "10737418240",
			"KERF_PERCENT": "25", "KERF_LEVEL": "driver",
		},
	}
	if d := cmp.Diff(want, c.in); d != "" {
		t.Error(d)
	}
	if b.caps.count() != 0 {
		t.Error("a cap is enforced before there is a cgroup")
	}
	if err := c.hooks(); err != nil {
		t.Fatal(err)
	}
	c.limits(map[sharing.GPURef]sharing.Bytes{gpu: 10 * sharing.GiB})
	if g := b.active(ask, c); g.ID != grant.ID {
		t.Errorf("attachment on grant %s, want %s", g.ID, grant.ID)
	}
	s := b.State(t.Context())
	if len(s.Grants) != 1 || !slices.Equal(s.Grants[0].PIDs, []int{c.p.PID}) ||
		s.Grants[0].Level != sharing.LevelDriver {
		t.Errorf("state %+v", s.Grants)
	}
	if got := place.ContainersOn(b.Store.Grants()); len(got) != 1 || len(got[gpu]) != 1 || got[gpu][0] != ask.Ref {
		t.Errorf("holders %+v", got)
	}
	if got := containersOf(b.PodGrants()); !slices.Equal(got, []string{"p/main"}) {
		t.Errorf("pods' grants %v", got)
	}
	c.remove()
	b.ContainerRemoved(c.id)
	b.eventually("the attachment ends, the grant stays", func() bool {
		g := b.grant(ask)
		return g != nil &&
			g.Active == nil
	})
	b.check()
	b.gone("p")
}

// Containers of a pod that run at the same time get their grants together or not at all. The error names the container
// that does not fit, and the free amounts.
func TestGrantPodIsAllOrNone(t *testing.T) {
	b := newPodBench(t)
	b.start()
	b.run(b.app("full", "gpu:2")) // two of the three GPUs
	asks := []sharing.ContainerRequest{
		b.ask("p", "first", sharing.ContainerApp, "gpu-memory-gib:40"),
		b.ask("p", "second", sharing.ContainerApp, "gpu-memory-gib:40"),
	}
	err := b.ReservePod(t.Context(), asks)
	if _, ok := errors.AsType[*allocator.NoFit](err); !ok {
		t.Fatalf("%v, want *NoFit", err)
	}
	refused(t, err, sharing.ErrExhausted, `container "second"`, "40GiB", "GPU 2", "39GiB free of 79GiB", "GPU 0-1",
		b.gpus[0].Model)
	if got := containersOf(b.PodGrants()); !slices.Equal(got, []string{"full/main"}) {
		t.Errorf("after a refusal there are grants of %v", got)
	}
	b.check()
	asks[1] = b.ask("p", "second", sharing.ContainerApp, "gpu-memory-gib:39")
	if err := b.ReservePod(t.Context(), asks); err != nil {
		t.Fatal(err)
	}
	if got := containersOf(b.PodGrants()); !slices.Equal(got, []string{"full/main", "p/first", "p/second"}) {
		t.Errorf("grants of %v", got)
	}
}

// A failed second call leaves what the first one held.
func TestGrantPodIsIdempotent(t *testing.T) {
	b := newPodBench(t)
	b.start()
	first := b.ask("p", "first", sharing.ContainerApp, "gpu-memory-gib:40")
	second := b.ask("p", "second", sharing.ContainerApp, "gpu-memory-gib:40")
	both := []sharing.ContainerRequest{first, second}
	if err := b.ReservePod(t.Context(), both); err != nil {
		t.Fatal(err)
	}
	before := b.State(t.Context()).Grants
	for range 3 {
		if err := b.ReservePod(t.Context(), both); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(before, b.State(t.Context()).Grants); d != "" {
		t.Errorf("the same again changed something:\n%s", d)
	}
	third := b.ask("p", "third", sharing.ContainerApp, "gpu-memory-gib:79")
	fourth := b.ask("p", "fourth", sharing.ContainerApp, "gpu-memory-gib:79")
	if err := b.ReservePod(t.Context(), append(both, third, fourth)); err == nil {
		t.Fatal("more than there is was reserved")
	}
	if d := cmp.Diff(before, b.State(t.Context()).Grants); d != "" {
		t.Errorf("a refusal changed what was held:\n%s", d)
	}
	// Used or not, an injection finds the grant that the sandbox made.
	for _, ask := range both {
		if c := b.run(ask); c.in.Grant != string(b.active(ask, c).ID) {
			t.Errorf("injected with %s", c.in.Grant)
		}
	}
	if n := len(b.State(t.Context()).Grants); n != 2 {
		t.Errorf("%d grants", n)
	}
}

// kubelet may admit the container with other amounts than the pod's spec had when the sandbox was made.
func TestAChangedAskIsReservedAnew(t *testing.T) {
	b := newPodBench(t)
	b.start()
	old, now := b.app("p", "gpu-memory-gib:10"), b.app("p", "gpu-memory-gib:20")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{old}); err != nil {
		t.Fatal(err)
	}
	c := b.run(now)
	g := b.active(now, c)
	if len(b.State(t.Context()).Grants) != 1 || g.Placement[0].Memory != 20*sharing.GiB {
		t.Errorf("grant %+v", g)
	}
	// While it runs, its amounts stand.
	_, err := b.Inject(t.Context(), old, b.newID())
	refused(t, err, sharing.ErrConflict, "main", "gpu-memory-gib:20")
	c.limits(map[sharing.GPURef]sharing.Bytes{g.Placement[0].GPU: 20 * sharing.GiB})
	b.check()
}

func TestAdvice(t *testing.T) {
	b := newPodBench(t)
	for i := range b.gpus {
		b.gpus[i].NUMA = i / 2 // GPUs 0 and 1 on node 0, GPU 2 on node 1
	}
	id := func(i int) sharing.GPURef { return b.gpus[i].Ref() }
	b.start()
	held := b.app("held", "gpu-memory-gib:40")
	held.Advice.GPUs = []sharing.GPUID{id(1).UUID}
	if got := b.inject(held).in.Placement.GPUs(); got[0] != id(1).String() {
		t.Fatalf("placed on %v", got)
	}
	tests := map[string]struct {
		amounts []string
		gpus    string // annotation kerf.dev/gpu-count
		advice  sharing.Advice
		want    []sharing.GPURef
	}{
		"planned and free": {[]string{"gpu-memory-gib:10"}, "1",
			sharing.Advice{GPUs: []sharing.GPUID{id(2).UUID}}, []sharing.GPURef{id(2)}},
		"planned and shared": {[]string{"gpu-memory-gib:39"}, "1",
			sharing.Advice{GPUs: []sharing.GPUID{id(1).UUID}}, []sharing.GPURef{id(1)}},
		"planned and full": {[]string{"gpu-memory-gib:40"}, "1",
			sharing.Advice{GPUs: []sharing.GPUID{id(1).UUID}}, []sharing.GPURef{id(0)}},
		"planned and unknown": {[]string{"gpu-memory-gib:10"}, "1",
			sharing.Advice{GPUs: []sharing.GPUID{"GPU-x"}}, []sharing.GPURef{id(1)}},
		"one planned, two requested": {[]string{"gpu-memory-gib:20"}, "2",
			sharing.Advice{GPUs: []sharing.GPUID{id(2).UUID}}, []sharing.GPURef{id(0), id(1)}},
		"two planned": {[]string{"gpu-memory-gib:20"}, "2",
			sharing.Advice{GPUs: []sharing.GPUID{id(2).UUID, id(0).UUID}}, []sharing.GPURef{id(0), id(2)}},
		"one planned twice": {[]string{"gpu-memory-gib:20"}, "2",
			sharing.Advice{GPUs: []sharing.GPUID{id(2).UUID, id(2).UUID}}, []sharing.GPURef{id(0), id(1)}},
		"none planned: the tightest": {[]string{"gpu-memory-gib:10"}, "1", sharing.Advice{},
			[]sharing.GPURef{id(1)}},
		"near node 1": {[]string{"gpu:1"}, "",
			sharing.Advice{NUMA: []sharing.NUMAAffinity{{NUMA: 1, Count: 1}}}, []sharing.GPURef{id(2)}},
		"near node 0": {[]string{"gpu:1"}, "",
			sharing.Advice{NUMA: []sharing.NUMAAffinity{{NUMA: 0, Count: 1}}}, []sharing.GPURef{id(0)}},
		"near both": {[]string{"gpu:2"}, "",
			sharing.Advice{NUMA: []sharing.NUMAAffinity{{NUMA: 0, Count: 1}, {NUMA: 1, Count: 1}}},
			[]sharing.GPURef{id(0), id(2)}},
		"near a node that has too few": {[]string{"gpu:2"}, "",
			sharing.Advice{NUMA: []sharing.NUMAAffinity{{NUMA: 0, Count: 2}}}, []sharing.GPURef{id(0), id(2)}},
		"near a node without GPUs": {[]string{"gpu:1"}, "",
			sharing.Advice{NUMA: []sharing.NUMAAffinity{{NUMA: 7, Count: 1}}}, nil},
		"near, and another number": {[]string{"gpu:2"}, "",
			sharing.Advice{NUMA: []sharing.NUMAAffinity{{NUMA: 1, Count: 1}}}, []sharing.GPURef{id(0), id(2)}},
		"near says nothing of a share": {[]string{"gpu-memory-gib:1"}, "1",
			sharing.Advice{NUMA: []sharing.NUMAAffinity{{NUMA: 1, Count: 1}}}, []sharing.GPURef{id(1)}},
		"the plan goes before what's near": {[]string{"gpu:1"}, "", sharing.Advice{GPUs: []sharing.GPUID{id(0).UUID},
			NUMA: []sharing.NUMAAffinity{{NUMA: 1, Count: 1}}}, []sharing.GPURef{id(0)}},
		"planned and taken, so near": {[]string{"gpu:1"}, "", sharing.Advice{GPUs: []sharing.GPUID{id(1).UUID},
			NUMA: []sharing.NUMAAffinity{{NUMA: 1, Count: 1}}}, []sharing.GPURef{id(2)}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ask := b.app("p", tc.amounts...)
			if tc.gpus != "" {
				var err error
				if ask.Request, _, err = sharing.RequestFromResources(sharing.Limits(ask.Requests),
					map[string]string{"kerf.dev/gpu-count": tc.gpus}, "main"); err != nil {
					t.Fatal(err)
				}
			}
			ask.Advice = tc.advice
			if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{ask}); err != nil {
				t.Fatal(err)
			}
			var got []sharing.GPURef
			for _, f := range b.active(ask, nil).Placement {
				got = append(got, f.GPU)
			}
			if tc.want != nil && !slices.Equal(got, tc.want) {
				t.Errorf("on %v, want %v", got, tc.want)
			}
			b.PodRemoved(ask.Ref.PodUID)
			b.eventually("the grant is dropped", func() bool { return b.grant(ask) == nil })
		})
	}
}

func TestPodsAreRefusedWhileBlocked(t *testing.T) {
	b := newPodBench(t)
	b.Runtime = New(b.opt)
	ask := b.app("p", "gpu-memory-gib:10")
	try := func(words ...string) {
		t.Helper()
		refused(t, b.ReservePod(t.Context(), []sharing.ContainerRequest{ask}), sharing.ErrUnavailable, words...)
		_, err := b.Inject(t.Context(), ask, b.newID())
		refused(t, err, sharing.ErrUnavailable, words...)
	}
	try("record")
	if err := b.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	try("no driver")
	b.attach()
	b.loops()
	b.Conditions.Set(conditions.NRI, "the NRI plugin is not connected")
	b.Conditions.Set(conditions.CDI, "the CDI specs are missing")
	try("NRI plugin is not connected", "CDI specs are missing")
	if why := b.PodsNotReady(); len(why) != 2 {
		t.Errorf("pods not ready: %q", why)
	}
	s := b.State(t.Context())
	if !s.Ready || !slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.Contains(w, "NRI plugin") }) {
		t.Errorf("ready %v, warnings %q", s.Ready, s.Warnings)
	}
	p := b.tenant()
	b.activate(p, "", gib(1)) // a process outside of pods needs no NRI
	p.end()
	b.Conditions.Set(conditions.NRI, "")
	b.Conditions.Set(conditions.CDI, "")
	c := b.run(ask)
	// One that is injected already is activated all the same: it was, before the condition came.
	b.Conditions.Set(conditions.NRI, "away")
	if err := c.hooks(); err != nil {
		t.Error(err)
	}
	b.Conditions.Set(conditions.NRI, "")
	c.remove()
	b.gone("p")
}

func TestARequestThatIsWrongIsFinal(t *testing.T) {
	b := newPodBench(t)
	b.start()
	ask := b.app("p", "gpu-memory-gib:10")
	ask.Request.Profile = "no-such"
	refused(t, b.ReservePod(t.Context(), []sharing.ContainerRequest{ask}), sharing.ErrInvalid, `container "main"`,
		"no-such")
	ask = b.app("p", "gpu-memory-gib:10")
	ask.Request.MinLevel = sharing.LevelHardware
	refused(t, b.ReservePod(t.Context(), []sharing.ContainerRequest{ask}), sharing.ErrUnsupported, `container "main"`)
	if n := len(b.PodGrants()); n != 0 {
		t.Errorf("%d grants", n)
	}
}

// A pod that is gone keeps its grants exactly until nothing uses them.
func TestPodGone(t *testing.T) {
	b := newPodBench(t)
	b.start()
	reserved, active := b.app("claimed", "gpu-memory-gib:79"), b.app("leased", "gpu-memory-gib:79")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{reserved}); err != nil {
		t.Fatal(err)
	}
	c := b.run(active)
	b.PodRemoved("uid-claimed")
	b.PodRemoved("uid-leased")
	b.PodRemoved("uid-no-one")
	b.eventually("the unused grant is dropped", func() bool { return b.grant(reserved) == nil })
	b.Reconcile(t.Context())
	b.active(active, c)
	c.limits(map[sharing.GPURef]sharing.Bytes{b.active(active, c).Placement[0].GPU: 79 * sharing.GiB})
	c.remove()
	b.eventually("the grant ends with its attachment", func() bool { return b.grant(active) == nil })
	b.gone()
}

// kubelet forgets a pod and the same static pod, with the same UID, comes again.
func TestAPodThatComesBackIsNotGone(t *testing.T) {
	b := newPodBench(t)
	b.still()
	ask := b.app("static", "gpu-memory-gib:10")
	c := b.run(ask)
	b.PodRemoved("uid-static")
	c.remove()
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{ask}); err != nil {
		t.Fatal(err)
	}
	b.Reconcile(t.Context())
	b.Reconcile(t.Context())
	if g := b.active(ask, nil); string(g.ID) != c.in.Grant {
		t.Errorf("grant %s, and it was %s", g.ID, c.in.Grant)
	}
	b.run(ask).remove()
	b.gone("static")
}

// Memory that the driver still charges to a cgroup without processes is not free, whatever kubelet says.
func TestAPodGoneWithMemoryStillCharged(t *testing.T) {
	b := newPodBench(t)
	b.start()
	ask := b.app("p", "gpu-memory-gib:79")
	c := b.run(ask)
	b.caps.set(func() { b.caps.used = sharing.GiB })
	c.exit()
	b.PodRemoved("uid-p")
	b.eventually("people see it", func() bool {
		return slices.ContainsFunc(b.State(t.Context()).Warnings,
			func(w string) bool { return strings.Contains(w, "still charges") })
	})
	b.active(ask, c)
	// The next instance must wait, and may come all the same.
	next := b.inject(ask)
	refused(t, next.hooks(), sharing.ErrUnavailable, "still in use")
	b.caps.set(func() { b.caps.used = 0 })
	if err := next.hooks(); err != nil {
		t.Fatal(err)
	}
	b.active(ask, next)
	next.remove()
	b.gone("p")
	if w := b.State(t.Context()).Warnings; len(w) != 0 {
		t.Errorf("warnings left: %q", w)
	}
}

// A driver that does not tell what an ended container uses: nothing is given back on doubt.
func TestADriverThatDoesNotTell(t *testing.T) {
	b := newPodBench(t)
	b.still()
	ask := b.app("p", "gpu-memory-gib:79")
	c := b.run(ask)
	c.exit()
	b.PodRemoved("uid-p")
	b.caps.set(func() { b.caps.silent = fmt.Errorf("read limit: %w", sharing.ErrUnavailable) })
	b.Reconcile(t.Context())
	b.active(ask, c)
	b.caps.set(func() { b.caps.silent = nil })
	b.gone("p")
}

func TestWholeGPUsAndPercentAlone(t *testing.T) {
	b := newPodBench(t)
	b.start()
	whole := b.run(b.app("whole", "gpu:2"))
	g := b.active(whole.ask, whole)
	if len(g.Placement) != 2 || g.Level != sharing.LevelExclusive ||
		whole.in.Env["KERF_LEVEL"] != "exclusive" {
		t.Errorf("whole %+v", g.Reservation)
	}
	// No limit on its own, the least on the third.
	for _, gpu := range b.gpus {
		limit, _, err := b.caps.Read(t.Context(), whole.group.Dir, gpu.Ref())
		_, own := g.Placement.On(gpu.Ref())
		if own != errors.Is(err, sharing.ErrNotFound) || !own && limit != least {
			t.Errorf("GPU %d, own %v: limit %v %v", gpu.Index, own, limit, err)
		}
	}
	half := b.run(b.app("half", "gpu-percent:50"))
	third := b.active(half.ask, half).Placement[0]
	want := b.gpus[2].Usable().Share(50)
	if third.GPU != b.gpus[2].Ref() || third.Memory != want || third.Percent != 50 {
		t.Errorf("half %+v", third)
	}
	half.limits(map[sharing.GPURef]sharing.Bytes{third.GPU: want})
	err := b.ReservePod(t.Context(), []sharing.ContainerRequest{b.app("more", "gpu-percent:51")})
	refused(t, err, sharing.ErrExhausted, `container "main"`)
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{b.app("rest", "gpu-percent:50")}); err != nil {
		t.Error(err)
	}
	whole.remove()
	half.remove()
	b.gone("whole", "half", "rest")
}

// A driver that cannot limit, and no other backend: only where the pool allows level none do containers run, and say
// so. One that has its grant keeps it when the pool allows that no more, and over the end of its container.
func TestADriverWithoutCaps(t *testing.T) {
	b := newPodBench(t)
	b.Runtime = New(b.opt)
	if err := b.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	levels := map[sharing.GPURef]choice.Report{}
	for _, g := range b.gpus {
		levels[g.Ref()] = choice.Report{sharing.BackendDriver: {Answer: choice.NotSupported,
			Reason: "driver 570 has no memory limits"}}
	}
	if err := b.Attach(t.Context(), gpudriver.Attached{Driver: b.driver, GPUs: b.gpus, Levels: levels}); err != nil {
		t.Fatal(err)
	}
	b.loops()
	ask := b.app("p", "gpu-memory-gib:10")
	refused(t, b.ReservePod(t.Context(), []sharing.ContainerRequest{ask}), sharing.ErrUnsupported,
		"no backend enforces shares of this GPU", "driver: driver 570 has no memory limits", "libkerf: ", "reactive: ",
		"set minEnforcement: none on the pool")
	b.apply(config.Default(), config.Pool{Name: "default", MinLevel: sharing.LevelNone})
	c := b.run(ask)
	if b.active(ask, c).Level != sharing.LevelNone || c.in.Env["KERF_LEVEL"] != "none" {
		t.Errorf("level %v", b.active(ask, c).Level)
	}
	if g := b.State(t.Context()).Grants[0]; g.Level != sharing.LevelNone || !strings.Contains(g.LevelReason, "570") {
		t.Errorf("shown as %v: %q", g.Level, g.LevelReason)
	}
	if b.caps.count() != 0 {
		t.Error("something set a cap")
	}
	demanding := b.app("q", "gpu-memory-gib:10")
	demanding.Request.MinLevel = sharing.LevelDriver
	refused(t, b.ReservePod(t.Context(), []sharing.ContainerRequest{demanding}), sharing.ErrUnsupported,
		`container "main"`)
	b.apply(config.Default(), config.Pool{Name: "default"})
	late := b.app("late", "gpu-memory-gib:10")
	refused(t, b.ReservePod(t.Context(), []sharing.ContainerRequest{late}), sharing.ErrUnsupported,
		"set minEnforcement: none")
	c.remove()
	c = b.run(ask)
	if g := b.active(ask, c); g.Level != sharing.LevelNone {
		t.Errorf("after a restart of its container: level %v", g.Level)
	}
	c.remove()
	b.gone("p")
}

// A process on a shared GPU without a grant is reported.
func TestStrangersOnASharedGPU(t *testing.T) {
	b := newPodBench(t)
	b.start()
	c, d := b.run(b.app("p", "gpu-memory-gib:10")), b.run(b.app("q", "gpu-memory-gib:10"))
	stranger := b.tenant()
	gpu, other := c.in.Placement[0].GPU, b.gpus[2].Ref()
	if d.in.Placement[0].GPU != gpu {
		t.Fatal("they do not share")
	}
	use := func(p *tenant) gpudriver.ProcessUse {
		return gpudriver.ProcessUse{PID: p.PID, Used: sharing.GiB, Known: true}
	}
	warned := func(p *tenant) bool {
		b.changed.announce() // a new picture
		return slices.ContainsFunc(b.State(t.Context()).Warnings, func(w string) bool {
			return strings.Contains(w, "without a grant") && strings.Contains(w, "pid "+lifecycle.Numbers([]int{p.PID}))
		})
	}
	b.driver.put(gpu, []gpudriver.ProcessUse{use(c.p), use(d.p)})
	if w := b.State(t.Context()).Warnings; len(w) != 0 {
		t.Errorf("warnings without an unmanaged process: %q", w)
	}
	b.driver.put(gpu, append(b.driver.on[gpu], use(stranger)))
	if !warned(stranger) {
		t.Errorf("no word of the unmanaged process: %q", b.State(t.Context()).Warnings)
	}
	if g := b.State(t.Context()).Grants[0]; g.Level != sharing.LevelDriver {
		t.Errorf("an unmanaged process makes a share %v", g.Level)
	}
	b.driver.put(gpu, b.driver.on[gpu][:2])
	// A container on a GPU that is not its own is one, too.
	b.driver.put(other, []gpudriver.ProcessUse{use(c.p)})
	if !warned(c.p) {
		t.Errorf("no word of the container on another GPU: %q", b.State(t.Context()).Warnings)
	}
	b.driver.put(other, nil)
	c.remove()
	d.remove()
	b.gone("p", "q")
}
