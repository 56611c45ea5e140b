// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/record"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// lose removes the record, as a disk would that was replaced, and starts the agent again.
func (b *bench) lose() {
	b.t.Helper()
	b.loseRecord()
	b.still()
}

func (b *bench) witness(seen ...sharing.Seen) {
	b.t.Helper()
	if err := b.Runtime.SyncRuntime(b.t.Context(), seen); err != nil {
		b.t.Fatal(err)
	}
	b.VerifyAll(b.t.Context()) // what the loops would do now
	b.Reconcile(b.t.Context())
}

// alarm is the warning of containers that run and are not accounted for.
func (b *bench) alarm() string {
	b.t.Helper()
	for _, w := range b.State(b.t.Context()).Warnings {
		if strings.Contains(w, "accounted") {
			return w
		}
	}
	return ""
}

// The checkpoint is lost. The agent finds what runs by the annotations of its containers. These are attachments with
// their shares, grants of what does not run yet, and caps that the driver lost as well.
func TestWitnessRebuildsALostRecord(t *testing.T) {
	b := newPodBench(t)
	b.still()
	whole := b.run(b.app("whole", "gpu:1"))
	share := b.run(b.app("share", "gpu-memory-gib:10", "gpu-percent:25"))
	app := b.app("with-init", "gpu-memory-gib:40")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{app}); err != nil {
		t.Fatal(err)
	}
	initial := b.run(b.initc("with-init", "prepare", "gpu-memory-gib:30"))
	waits := b.inject(b.app("waits", "gpu-percent:30"))
	before := b.State(t.Context())
	b.lose()
	b.caps.forget()
	if n := len(b.State(t.Context()).Grants); n != 0 {
		t.Fatalf("%d grants without record or sync", n)
	}
	refused(t, waits.hooks(), sharing.ErrUnavailable)
	seen := []sharing.Seen{
		whole.seen(), share.seen(), initial.seen(),
		(&container{b: b, ask: waits.ask, id: waits.id, in: waits.in}).seen(),
		{ID: b.newID(), PID: 1, Running: true, CDINames: []string{"nvidia.com/gpu=all"}},
		{ID: b.newID(), Removed: true, CDINames: []string{sharing.HookDevice}, Annotation: "x"},
	}
	b.witness(seen...)
	after := b.State(t.Context())
	if len(after.Grants) != len(before.Grants) {
		t.Fatalf("%d grants found again, there were %d", len(after.Grants), len(before.Grants))
	}
	for i, g := range after.Grants {
		w := before.Grants[i]
		if g.ID != w.ID || g.Owner != w.Owner ||
			!slices.Equal(g.Placement, w.Placement) || g.Level != w.Level ||
			(g.Active == nil) != (w.Active == nil) {
			t.Errorf("found again %+v\nthere was %+v", g, w)
		}
		if g.Active != nil && (g.Active.ContainerID != w.Active.ContainerID ||
			g.Active.Container != w.Active.Container ||
			g.Active.Cgroup != w.Active.Cgroup ||
			g.Active.Inode != w.Active.Inode || !slices.Equal(g.Active.Part, w.Active.Part)) {
			t.Errorf("attachment %+v, there was %+v", g.Active, w.Active)
		}
	}
	for i, g := range after.GPUs {
		if w := before.GPUs[i]; g.Granted != w.Granted || g.GrantedPercent != w.GrantedPercent {
			t.Errorf("GPU %d: %v granted, there were %v", i, g.Granted, w.Granted)
		}
	}
	share.limits(map[sharing.GPURef]sharing.Bytes{share.in.Placement[0].GPU: 10 * sharing.GiB})
	initial.limits(map[sharing.GPURef]sharing.Bytes{initial.in.Placement[0].GPU: 30 * sharing.GiB})
	if a := b.alarm(); a != "" {
		t.Errorf("alarm: %s", a)
	}
	if n := len(b.recorded()); n != len(after.Grants) {
		t.Errorf("%d grants on record again", n)
	}
	b.check()
	// What waited for its hook starts; the init container hands over.
	if err := waits.hooks(); err != nil {
		t.Fatal(err)
	}
	initial.exit()
	a := b.run(app)
	a.limits(map[sharing.GPURef]sharing.Bytes{a.in.Placement[0].GPU: 40 * sharing.GiB})
	// Again says nothing new.
	b.witness(whole.seen(), share.seen(), a.seen(), waits.seen())
	b.check()
	for _, c := range []*container{whole, share, a, waits} {
		c.remove()
	}
	b.gone("whole", "share", "with-init", "waits")
}

// A container that has the hook device and no grant is an error. It is reported as long as it runs, and gets nothing.
func TestAGuardedContainerWithoutAGrantIsAnAlarm(t *testing.T) {
	b := newPodBench(t)
	b.still()
	real := b.run(b.app("p", "gpu-memory-gib:10"))
	b.lose()
	rec, err := record.DecodeGrant(real.in.Annotation)
	if err != nil {
		t.Fatal(err)
	}
	note := func(change func(*record.Grant)) string {
		r := rec
		u := *rec.Use
		r.Use, r.Shares = &u, slices.Clone(rec.Shares)
		change(&r)
		s, err := record.EncodeGrant(r)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	stranger := b.tenant()
	tests := map[string]func(*sharing.Seen){
		"no note":              func(s *sharing.Seen) { s.Annotation = "" },
		"a note that is none":  func(s *sharing.Seen) { s.Annotation = "{}" },
		"not a document":       func(s *sharing.Seen) { s.Annotation = "kerf" },
		"another container id": func(s *sharing.Seen) { s.ID = b.newID() },
		"a note of another id": func(s *sharing.Seen) {
			s.Annotation = note(func(r *record.Grant) { r.Use.ContainerID = b.newID() })
		},
		"a note without a user": func(s *sharing.Seen) { s.Annotation = note(func(r *record.Grant) { r.Use = nil }) },
		"other amounts":         func(s *sharing.Seen) { s.CDINames[1] = "kerf.dev/ask=gpu-memory-gib:20" },
		"a second amount": func(s *sharing.Seen) {
			s.CDINames = append(s.CDINames,
				"kerf.dev/ask=gpu-percent:20")
		},
		"a note of other amounts": func(s *sharing.Seen) {
			s.Annotation = note(func(r *record.Grant) { r.Use.Requests = []string{"gpu-memory-gib:60"} })
		},
		"a note of no amounts": func(s *sharing.Seen) {
			s.Annotation = note(func(r *record.Grant) { r.Use.Requests = nil })
		},
		"a note of amounts that aren't": func(s *sharing.Seen) {
			s.Annotation = note(func(r *record.Grant) { r.Use.Requests = []string{"gpu:x"} })
		},
		"another pod":                  func(s *sharing.Seen) { s.Ref.PodUID = "uid-other" },
		"another container of the pod": func(s *sharing.Seen) { s.Ref.Container = "other" },
		"a note of another pod": func(s *sharing.Seen) {
			s.Annotation = note(func(r *record.Grant) { r.PodUID = "uid-other" })
		},
		"a level that is none": func(s *sharing.Seen) {
			s.Annotation = note(func(r *record.Grant) { r.Level = "best" })
		},
		"two shares of one GPU": func(s *sharing.Seen) {
			s.Annotation = note(func(r *record.Grant) { r.Shares = append(r.Shares, r.Shares[0]) })
		},
		"a part outside of the grant": func(s *sharing.Seen) {
			s.Annotation = note(func(r *record.Grant) {
				r.Use.Part = []record.Share{{GPU: "GPU-x",
					Memory: sharing.GiB}}
			})
		},
		"an ask without the guard":    func(s *sharing.Seen) { s.CDINames = s.CDINames[1:] },
		"the guard without a request": func(s *sharing.Seen) { s.CDINames = s.CDINames[:1] },
		"a process of another":        func(s *sharing.Seen) { s.PID = stranger.PID },
		"a process that has ended":    func(s *sharing.Seen) { s.PID = 1 << 22 },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			seen := real.seen()
			change(&seen)
			b.witness(seen)
			if a := b.alarm(); !strings.Contains(a, seen.Ref.String()) || !strings.Contains(a, seen.ID) {
				t.Errorf("alarm %q", a)
			}
			if g := b.State(t.Context()).Grants; len(g) != 0 {
				t.Errorf("it has %+v", g)
			}
			b.check()
			// One that does not run is refused its start, and needs no alarm.
			seen.Running, seen.PID = false, 0
			if name != "a process of another" && name != "a process that has ended" &&
				name != "a part outside of the grant" && name != "two shares of one GPU" {
				b.witness(seen)
				if a := b.alarm(); a != "" || len(b.State(t.Context()).Grants) != 0 {
					t.Errorf("not running: alarm %q, grants %+v", a, b.State(t.Context()).Grants)
				}
			}
		})
	}
	t.Run("a note without the guard", func(t *testing.T) {
		seen := real.seen()
		seen.CDINames = []string{"nvidia.com/gpu=0"}
		b.witness(seen)
		if g := b.State(t.Context()).Grants; len(g) != 0 || b.alarm() != "" {
			t.Errorf("it has %+v, alarm %q", g, b.alarm())
		}
	})
	// And the real one is found, from a process that went into a group beneath its own.
	sub, err := b.opt.Cgroups.Create(path.Join(b.kubepods, real.id, "init.scope"))
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.Add(real.p.PID); err != nil {
		t.Fatal(err)
	}
	b.witness(real.seen())
	if a := b.alarm(); a != "" {
		t.Errorf("alarm %q", a)
	}
	b.active(real.ask, real)
	real.remove()
	b.gone("p")
}

// A list that is not complete lets go of nothing; one that is does: such a container was never made.
func TestCrossCheckPrunesNothing(t *testing.T) {
	b := newPodBench(t)
	b.still()
	c, active := b.inject(b.app("p", "gpu-memory-gib:10")), b.run(b.app("q", "gpu-memory-gib:10"))
	if err := b.CrossCheck(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := c.hooks(); err != nil {
		t.Fatal(err)
	}
	never := b.inject(b.app("r", "gpu-memory-gib:10"))
	b.witness(active.seen()) // c's attachment is a fact, and needs no list
	b.active(c.ask, c)
	b.active(active.ask, active)
	b.active(never.ask, nil) // its pod has its grant still
	refused(t, never.hooks(), sharing.ErrNotFound, "without its grant")
	b.check()
	again := b.run(never.ask)
	for _, c := range []*container{c, active, again} {
		c.remove()
	}
	b.gone("p", "q", "r")
}

// An instance that the container runtime calls gone is let go of, and so is its id.
func TestWitnessOfWhatIsGone(t *testing.T) {
	b := newPodBench(t)
	b.still()
	c := b.inject(b.app("p", "gpu-memory-gib:10"))
	seen := c.seen()
	seen.Removed = true
	b.witness(seen)
	refused(t, c.hooks(), sharing.ErrNotFound)
	b.active(c.ask, nil)
	b.check()
	b.gone("p")
}

// The next instance was injected while the one before it was still attached, and then the agent restarts. The
// checkpoint has the one, and the annotation the other.
func TestTheNextInstanceIsFoundByItsNote(t *testing.T) {
	for name, tc := range map[string]struct{ ended, made bool }{
		"the former runs": {}, "the former has ended": {ended: true},
		"the former has ended, and the next is seen in its cgroup": {ended: true, made: true},
	} {
		t.Run(name, func(t *testing.T) {
			ended := tc.ended
			b := newPodBench(t)
			b.still()
			ask := b.app("p", "gpu-memory-gib:10")
			former := b.run(ask)
			next := b.inject(ask)
			if ended {
				former.exit() // and no check has seen it
			}
			if tc.made {
				next.make()
			}
			b.still()
			b.active(ask, former)
			formerSeen, nextSeen := former.seen(), next.seen()
			formerSeen.Removed = ended
			if err := b.Runtime.SyncRuntime(t.Context(), []sharing.Seen{formerSeen, nextSeen}); err != nil {
				t.Fatal(err)
			}
			if !ended {
				refused(t, next.hooks(), sharing.ErrUnavailable, "still in use")
				former.exit()
			}
			if err := next.hooks(); err != nil {
				t.Fatal(err)
			}
			b.active(ask, next)
			next.limits(map[sharing.GPURef]sharing.Bytes{next.in.Placement[0].GPU: 10 * sharing.GiB})
			b.check()
			next.remove()
			b.gone("p")
		})
	}
}

// A container whose task was seen running before its hook was through is booked, and its hook is answered.
func TestWitnessBeforeTheHook(t *testing.T) {
	b := newPodBench(t)
	b.still()
	c := b.inject(b.app("p", "gpu-memory-gib:10")).make()
	b.witness(c.seen())
	b.active(c.ask, c)
	c.limits(map[sharing.GPURef]sharing.Bytes{c.in.Placement[0].GPU: 10 * sharing.GiB})
	if err := c.hooks(); err != nil {
		t.Fatal(err)
	}
	b.active(c.ask, c)
	c.remove()
	b.gone("p")
}

// Two containers cannot be found again where only one was: the GPU is then overbooked, which is said, and
// takes nothing more.
func TestWitnessOfMoreThanThereIs(t *testing.T) {
	b := newPodBench(t)
	b.still()
	c := b.run(b.app("p", "gpu-memory-gib:79"))
	b.lose()
	other := b.app("q", "gpu-memory-gib:79")
	other.Advice.GPUs = []sharing.GPUID{c.in.Placement[0].GPU.UUID}
	d := b.run(other)
	b.witness(c.seen(), d.seen())
	b.active(c.ask, c)
	b.active(other, d)
	var over []ledger.View
	b.Store.Read(func(l store.Reader) { over = l.Overbooked() })
	if len(over) != 1 || over[0].FreeMemory != 0 {
		t.Errorf("overbooked %+v", over)
	}
	b.check()
	c.remove()
	d.remove()
	b.gone("p", "q")
}

// Caps that the driver lost together with the record are put back without being asked for.
func TestWitnessHasCapsVerified(t *testing.T) {
	b := newPodBench(t)
	b.still()
	c := b.run(b.app("p", "gpu-memory-gib:10"))
	b.lose()
	b.caps.forget()
	if err := b.Runtime.SyncRuntime(t.Context(), nil); err != nil || b.VerifyDue() {
		t.Fatalf("nothing was found, and a verification is due %t (%v)", b.VerifyDue(), err)
	}
	if err := b.Runtime.SyncRuntime(t.Context(), []sharing.Seen{c.seen()}); err != nil || !b.VerifyDue() {
		t.Fatalf("no verification is due (%v)", err)
	}
	b.loops()
	b.eventually("its cap is back", func() bool {
		limit, _, err := b.caps.Read(t.Context(), c.group.Dir, c.in.Placement[0].GPU)
		return err == nil && limit == 10*sharing.GiB
	})
	c.remove()
	b.gone("p")
}

// The same container is started a second time: its cgroup has the name of the first, and is another.
func TestACgroupOfTheSameName(t *testing.T) {
	b := newPodBench(t)
	b.still()
	c := b.run(b.app("p", "gpu-memory-gib:10"))
	c.remove()
	c.p = nil
	c.make()
	refused(t, c.hooks(), sharing.ErrUnavailable, "earlier cgroup")
	b.Reconcile(t.Context())
	b.active(c.ask, nil)
	if busy, err := c.group.Populated(); !busy {
		t.Errorf("the second was touched: %v", err)
	}
	c.remove()
	b.gone("p")
}
