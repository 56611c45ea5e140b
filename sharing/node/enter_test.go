// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/cgroup/cgrouptest"
	"github.com/kerf-gpu/kerf/internal/failpoint"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

// afterThaw is the one failpoint of an activation at which the process runs in its cgroup.
const afterThaw = "arm-after-thaw"

func activatePoints() []string {
	var points []string
	for _, p := range lifecycle.Failpoints() {
		if strings.HasPrefix(p, "arm-") {
			points = append(points, p)
		}
	}
	return points
}

// runsIn checks where a tenant is, and that it does not stand still there.
func (b *bench) runsIn(p *tenant, dir string) {
	b.t.Helper()
	if in, err := b.opt.Cgroups.OfProcess(p.PID); err != nil || in != dir {
		b.t.Errorf("process is in %q (%v), want %q", in, err, dir)
	}
	if g, err := b.opt.Cgroups.Open(dir, 0); err == nil { // the root group cannot be frozen
		if freezing, err := g.Freezing(); freezing || err != nil {
			b.t.Errorf("cgroup %q is frozen: %v, %v", dir, freezing, err)
		}
	}
}

// group is a cgroup that lasts until the test ends.
func (b *bench) group(name string) cgroup.Group {
	b.t.Helper()
	g, err := b.opt.Cgroups.Create(b.opt.Parent + "-" + name)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		b.eventually("empty", func() bool { busy, err := g.Populated(); return !busy || err != nil })
		if err := g.Remove(); err != nil {
			b.t.Error(err)
		}
	})
	return g
}

// An agent may die at any point of an activation. The next one corrects all that it leaves, before it has a driver.
func TestADeathAtEachPointOfAnActivation(t *testing.T) {
	for _, point := range activatePoints() {
		t.Run(point, func(t *testing.T) {
			b := newBench(t)
			from := b.group("from")
			set, err := failpoint.Parse(point+"=exit", failpoint.Actions{Exit: func(string) { runtime.Goexit() }})
			if err != nil {
				t.Fatal(err)
			}
			b.opt.Failpoints = set
			stop := b.started()
			p := b.tenant()
			if err := from.Add(p.PID); err != nil {
				t.Fatal(err)
			}
			b.activateAndDie(p)
			stop()
			b.opt.Failpoints = nil
			b.Runtime = New(b.opt)
			if err := b.Restore(t.Context()); err != nil {
				t.Fatal(err)
			}
			if point == afterThaw { // it was checked, and runs
				g := b.State(t.Context()).Grants
				if len(g) != 1 || g[0].Active == nil {
					t.Fatalf("grants %+v", g)
				}
				b.runsIn(p, g[0].Active.Cgroup)
				p.end()
			} else {
				b.runsIn(p, from.Dir)
			}
			b.attach()
			b.loops()
			b.eventually("nothing is held", func() bool { return len(b.State(t.Context()).Grants) == 0 })
			b.empty()
		})
	}
}

// activateAndDie activates until the failpoint ends the caller.
func (b *bench) activateAndDie(p *tenant) {
	b.t.Helper()
	id, err := b.Reserve(b.t.Context(), p.Peer, "", gib(10))
	if err != nil {
		b.t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		defer close(done)
		_, err := b.Activate(b.t.Context(), p.Peer, id)
		done <- err
	}()
	if err, came := <-done; came {
		b.t.Fatalf("the agent did not die: %v", err)
	}
}

// A process that reached the driver before its activation is rejected, and nothing of the grant stays.
func TestAProcessWithADeviceFileIsNotActivated(t *testing.T) {
	for _, name := range []string{"nvidia0", "nvidia9", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1"} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			b := newBench(t)
			b.opt.DevRoot = t.TempDir()
			file := filepath.Join(b.opt.DevRoot, "dev", name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			b.start()
			open, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			p := b.tenantWith(open)
			_ = open.Close()
			from, err := b.opt.Cgroups.OfProcess(p.PID)
			if err != nil {
				t.Fatal(err)
			}
			id, err := b.Reserve(t.Context(), p.Peer, "", gib(10))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Activate(t.Context(), p.Peer, id); !errors.Is(err, sharing.ErrConflict) ||
				!strings.Contains(err.Error(), file) {
				t.Errorf("activate: %v", err)
			}
			b.runsIn(p, from)
			b.empty()
		})
	}
}

// A process that takes the GPU while the agent prepares its cgroup is seen, because the agent looks after the move.
func TestAProcessThatTakesAGPUMeanwhileIsNotActivated(t *testing.T) {
	b := newBench(t)
	b.start()
	p := b.tenant()
	b.caps.set(func() {
		b.caps.onApply = func() {
			b.driver.put(b.gpus[1].Ref(), []gpudriver.ProcessUse{{PID: p.PID, Used: sharing.GiB, Known: true}})
		}
	})
	id, err := b.Reserve(t.Context(), p.Peer, "", gib(10))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Activate(t.Context(), p.Peer, id); !errors.Is(err, sharing.ErrConflict) ||
		!strings.Contains(err.Error(), "uses GPU 1 already") {
		t.Errorf("activate: %v", err)
	}
	b.empty()
}

// If a process is in the cgroup and its cap is not enforced any more, the process is not admitted.
func TestACapThatIsGoneKeepsTheProcessOut(t *testing.T) {
	b := newBench(t)
	b.start()
	p := b.tenant()
	b.caps.set(func() { b.caps.onApply = func() { b.caps.limits = map[string]map[sharing.GPURef]sharing.Bytes{} } })
	id, err := b.Reserve(t.Context(), p.Peer, "", gib(10))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Activate(t.Context(), p.Peer, id); err == nil || !strings.Contains(err.Error(), "back") {
		t.Errorf("activate: %v", err)
	}
	b.empty()
}

// Of two activations at once, the one that cannot stop its process does not keep the other from its own.
func TestTwoActivationsAtOnce(t *testing.T) {
	b := newBench(t)
	b.start()
	stuck := b.tenantRunning(nil, "cat", cgrouptest.Unanswered(t))
	b.eventually("it waits", func() bool { return cgrouptest.IsWaiting(t, stuck.PID) })
	p := b.tenant()
	ids := map[*tenant]ledger.GrantID{}
	for _, who := range []*tenant{stuck, p} {
		id, err := b.Reserve(t.Context(), who.Peer, fmt.Sprint("p", who.PID), gib(10))
		if err != nil {
			t.Fatal(err)
		}
		ids[who] = id
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	errs := make(chan error, 1)
	wg.Go(func() { _, err := b.Activate(t.Context(), stuck.Peer, ids[stuck]); errs <- err })
	if _, err := b.Activate(t.Context(), p.Peer, ids[p]); err != nil {
		t.Errorf("activate: %v", err)
	}
	if err := <-errs; !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("activate of a process that does not stop: %v", err)
	}
	if s := b.State(t.Context()); len(s.Grants) != 1 || s.Grants[0].Owner.PID != p.PID {
		t.Errorf("grants %+v", s.Grants)
	}
	p.end()
	b.eventually("the attachment ends", func() bool { return len(b.State(t.Context()).Grants) == 0 })
	b.empty()
}

// Crash tests stop at each of the points that the list names, so the list must have all that are in the source.
func TestFailpointsAreAll(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.go", "lifecycle/*.go"} {
		some, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, some...)
	}
	call := regexp.MustCompile(`Failpoints\.Eval\("([^"]+)"\)`)
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, point := range call.FindAllStringSubmatch(string(text), -1) {
			if found++; !slices.Contains(lifecycle.Failpoints(), point[1]) {
				t.Errorf("%s: %q is missing in Failpoints", file, point[1])
			}
		}
	}
	if found < 12 || len(activatePoints()) != 8 {
		t.Errorf("%d points found, %q among them", found, activatePoints())
	}
}
