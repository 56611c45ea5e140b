// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// worker is a process in the cgroup of a grant that has the GPU's files open and uses no memory. The data loader of a
// trainer is one.
func (g *guarded) worker(a lifecycle.Activated) *tenant {
	g.t.Helper()
	w := g.tenant()
	group, err := g.bench.opt.Cgroups.Open(g.dir(a), 0)
	if err == nil {
		err = group.Add(w.PID)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return w
}

// dir is the cgroup of an attachment.
func (g *guarded) dir(a lifecycle.Activated) string {
	gs, _ := g.bench.Grant(a.ID)
	return gs.Active.Cgroup
}

func processOf(p *tenant) listing.Process { return listing.Process{PID: p.PID, Start: p.Start} }

// dies ends a process whose memory others keep.
func (g *guarded) dies(p *tenant) {
	g.driver.mu.Lock()
	g.driver.kept[p.PID] = true
	g.driver.mu.Unlock()
	p.end()
}

// charge is what status shows that a grant uses of its GPU, and what it says of memory that belongs to processes that
// have ended.
func (g *guarded) charge(a lifecycle.Activated) (used sharing.Bytes, known bool, says string) {
	g.t.Helper()
	g.bench.changed.announce() // a new picture
	s := g.bench.State(g.t.Context())
	i := slices.IndexFunc(s.Grants, func(gs status.Grant) bool { return gs.ID == a.ID })
	for _, w := range s.Warnings {
		if strings.HasPrefix(w, fmt.Sprintf("grant %s: ", a.ID)) {
			says = w
		}
	}
	return s.Grants[i].Used[0], s.Grants[i].UsedKnown[0], says
}

// TestMemoryOfEndedProcessesIsCharged has a trainer end whose worker lives on.
func TestMemoryOfEndedProcessesIsCharged(t *testing.T) {
	g := newGuarded(t, killing)
	p, a := g.share(4)
	worker := g.worker(a)
	idle := g.worker(a)
	g.kernel.set(g.kernel.closed, idle.PID, true)
	g.holds(gibs(p, 3))
	g.looks(2)
	if used, known, says := g.charge(a); used != 3*sharing.GiB || !known || says != "" {
		t.Errorf("while it runs: %s %v %q", used, known, says)
	}
	g.dies(p)
	g.looks(3)
	g.lives(worker) // it keeps no more than the cap
	want := fmt.Sprintf(
		"grant %s: 3GiB of GPU 0 belongs to processes that have ended; PID %d keeps the GPU's files open", a.ID,
		worker.PID)
	if used, known, says := g.charge(a); used != 3*sharing.GiB || !known || says != want {
		t.Errorf("after its end: %s %v %q, want %q", used, known, says, want)
	}
	g.kernel.set(g.kernel.closed, worker.PID, true)
	if _, _, says := g.charge(a); !strings.Contains(says, "no process of the grant has the GPU's files open") {
		t.Errorf("where another process keeps it: %q", says)
	}
	g.kernel.set(g.kernel.unread, worker.PID, true)
	if used, known, says := g.charge(a); used != 3*sharing.GiB || !known ||
		!strings.Contains(says, "cannot tell which processes keep") {
		t.Errorf("where it cannot be read: %s %v %q", used, known, says)
	}
	g.kernel.set(g.kernel.unread, worker.PID, false)
	g.kernel.set(g.kernel.closed, worker.PID, false)

	// A second trainer exceeds the cap with it, and holds less than what the worker keeps.
	second := g.worker(a)
	g.holds(gibs(p, 3), gibs(second, 2))
	g.looks(3)
	g.dead(worker)
	g.holds(gibs(second, 2))
	g.looks(3)
	g.lives(second)
	g.lives(idle)
	if diff := cmp.Diff([]string{"over_cap"}, g.seen.killed); diff != "" || len(g.seen.spared) != 0 {
		t.Errorf("%s, spared %v", diff, g.seen.spared)
	}
	if used, known, says := g.charge(a); used != 2*sharing.GiB || !known || says != "" {
		t.Errorf("after the worker's end: %s %v %q", used, known, says)
	}
}

// TestMemoryThatIsKeptElsewhere keeps an attachment whose cgroup is empty: what its processes held is not free.
func TestMemoryThatIsKeptElsewhere(t *testing.T) {
	g := newGuarded(t, killing)
	p, a := g.share(4)
	g.holds(gibs(p, 3))
	g.looks(1)
	g.dies(p)
	g.bench.Reconcile(t.Context())
	s := g.bench.State(t.Context())
	if len(s.Grants) != 1 || !slices.ContainsFunc(s.Warnings, func(w string) bool {
		return strings.Contains(w, string(a.ID)+" has no process any more, and another process keeps 3GiB of GPU")
	}) {
		t.Errorf("%d grants, warnings %q", len(s.Grants), s.Warnings)
	}
	g.holds()
	g.bench.Reconcile(t.Context())
	if s := g.bench.State(t.Context()); len(s.Grants) != 0 {
		t.Errorf("when all is free: %d grants, warnings %q", len(s.Grants), s.Warnings)
	}
}

// given has the driver list a process that has ended, and was in a grant, under the number of another one.
func (g *guarded) given(a lifecycle.Activated, to *tenant, n int) {
	dir := g.dir(a)
	g.kernel.mu.Lock()
	g.kernel.former[to.PID] = former{to.Start - 1, dir}
	g.kernel.mu.Unlock()
	g.holds(gibs(to, n))
	g.looks(1)
	g.kernel.mu.Lock()
	delete(g.kernel.former, to.PID)
	g.kernel.mu.Unlock()
}

// TestAnInnocentHasTheNumber reuses the number of a process that ended and left memory. The new process has nothing to
// do with it: it belongs to another grant, or to none.
func TestAnInnocentHasTheNumber(t *testing.T) {
	pool := killing
	pool.OnUnmanagedProcess = config.UnmanagedKill
	for _, granted := range []bool{true, false} {
		t.Run(fmt.Sprintf("in a grant %v", granted), func(t *testing.T) {
			g := newGuarded(t, pool)
			first, guilty := g.share(4)
			g.kernel.set(g.kernel.closed, first.PID, true)
			worker := g.worker(guilty)
			innocent := g.tenant()
			var own lifecycle.Activated
			if granted {
				innocent, own = g.share(2)
			}
			g.given(guilty, innocent, 5)
			g.kernel.set(g.kernel.closed, innocent.PID, true)
			g.looks(4)
			g.lives(innocent)
			g.dead(worker) // which keeps it
			if used, known, _ := g.charge(guilty); used != 5*sharing.GiB || !known {
				t.Errorf("the grant that it was in is charged with %s %v", used, known)
			}
			if granted {
				if used, known, _ := g.charge(own); used != 0 || !known {
					t.Errorf("the innocent's grant is charged with %s %v", used, known)
				}
			}
			if diff := cmp.Diff([]string{"over_cap"}, g.seen.killed); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestBothUseTheGPU has the process with the number use the GPU, too: nothing shows how much each uses.
func TestBothUseTheGPU(t *testing.T) {
	g := newGuarded(t, killing)
	_, guilty := g.share(4)
	worker := g.worker(guilty)
	innocent, own := g.share(2)
	third, other := g.share(2)
	g.given(guilty, innocent, 5)
	g.driver.put(g.gpus[0].Ref(), append(g.driver.on[g.gpus[0].Ref()], gibs(third, 1)))
	g.looks(5)
	g.lives(innocent)
	g.lives(worker)
	for _, a := range []lifecycle.Activated{guilty, own} {
		if _, known, _ := g.charge(a); known {
			t.Errorf("the usage of %s is reported", a.ID)
		}
		if gs, _ := g.bench.Grant(a.ID); gs.Level != sharing.LevelUnknown ||
			!strings.Contains(gs.LevelReason,
				fmt.Sprintf("process %d, which is listed on GPU 0, has the number of one that has ended",
					innocent.PID)) {
			t.Errorf("%v: %q", gs.Level, gs.LevelReason)
		}
	}
	if used, known, _ := g.charge(other); used != sharing.GiB || !known {
		t.Errorf("a third grant is charged with %s %v", used, known)
	}
	if gs, _ := g.bench.Grant(other.ID); gs.Level != sharing.LevelReactive {
		t.Errorf("a third grant: %v %q", gs.Level, gs.LevelReason)
	}
	if len(g.seen.killed)+len(g.seen.spared) != 0 {
		t.Errorf("killed %v, spared %v", g.seen.killed, g.seen.spared)
	}
}

// TestUnreadableIsUnknown has a process on the GPU that cannot be read, as when the agent has no descriptors left.
func TestUnreadableIsUnknown(t *testing.T) {
	g := newGuarded(t, killing)
	p, a := g.share(4)
	g.kernel.set(g.kernel.unread, p.PID, true)
	g.holds(gibs(p, 70))
	g.looks(4)
	g.lives(p)
	if gs, _ := g.bench.Grant(a.ID); gs.Level != sharing.LevelUnknown ||
		!strings.Contains(gs.LevelReason, fmt.Sprintf("process %d, which is listed on GPU 0, cannot be read", p.PID)) {
		t.Errorf("%v: %q", gs.Level, gs.LevelReason)
	}
	if _, known, _ := g.charge(a); known {
		t.Error("its usage is reported")
	}
	g.kernel.set(g.kernel.unread, p.PID, false)
	g.looks(3)
	g.dead(p)
}

// TestSignalsNeedTheFile has processes close the GPU's file before they are signaled: others keep what they held.
func TestSignalsNeedTheFile(t *testing.T) {
	pool := killing
	pool.OnUnmanagedProcess = config.UnmanagedKill
	g := newGuarded(t, pool)
	p, a := g.share(4)
	worker := g.worker(a)
	stranger := g.tenant()
	g.holds(gibs(p, 5), gibs(stranger, 1))
	g.looks(1)
	g.kernel.set(g.kernel.closed, p.PID, true)
	g.kernel.set(g.kernel.closed, stranger.PID, true)
	g.looks(2)
	g.lives(p)
	g.lives(stranger)
	g.looks(2)
	g.dead(worker) // the one that keeps it
	g.lives(p)
	g.lives(stranger)
	slices.Sort(g.seen.spared)
	if d := cmp.Diff([]string{"over_cap", "unmanaged"}, slices.Compact(g.seen.spared)); d != "" {
		t.Error(d)
	}
	never := g.tenant()
	g.kernel.set(g.kernel.closed, never.PID, true)
	g.holds(gibs(never, 1))
	g.looks(4)
	g.lives(never)
}

// TestAfterARestartTheListingStartsAnew has the agent start while a process is listed that has ended. Nothing is ended
// for what is only inferred.
func TestAfterARestartTheListingStartsAnew(t *testing.T) {
	g := newGuarded(t, killing)
	p, a := g.share(4)
	worker := g.worker(a)
	g.holds(gibs(p, 5))
	g.looks(1)
	g.dies(p)
	g.restartAgent()
	g.looks(4)
	g.lives(worker)
	used, known, says := g.charge(a)
	if used != 5*sharing.GiB || !known || !strings.HasSuffix(says, "; no other grant has such a process") {
		t.Errorf("%s %v %q", used, known, says)
	}
	if !slices.ContainsFunc(g.bench.State(t.Context()).Warnings,
		func(w string) bool { return strings.Contains(w, "holds more than its 4GiB") }) {
		t.Errorf("warnings %q", g.bench.State(t.Context()).Warnings)
	}
}
