// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/guard"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
	"github.com/kerf-gpu/kerf/sharing/node/recovery"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// seen writes down what the guard tells.
type seen struct {
	nopObserver
	killed, spared []string
	evicted        []string
	overs          []sharing.Bytes
	looks          int
	uncounted      int
}

func (s *seen) Uncounted() { s.uncounted++ }

func (s *seen) Watched(time.Duration, int)                { s.looks++ }
func (s *seen) OverCap(_ time.Duration, by sharing.Bytes) { s.overs = append(s.overs, by) }

func (s *seen) Evicted(reason string, err error) {
	if err != nil {
		reason += " refused"
	}
	s.evicted = append(s.evicted, reason)
}

func (s *seen) Killed(reason string, err error) {
	if err != nil {
		s.spared = append(s.spared, reason)
		return
	}
	s.killed = append(s.killed, reason)
}

// guarded is a bench on a driver that cannot limit memory, whose guard looks when the test says so.
type guarded struct {
	*bench
	seen *seen
}

func newGuarded(t *testing.T, pool config.Pool) *guarded {
	t.Helper()
	b := newBench(t)
	s := &seen{}
	b.opt.Observer, b.opt.Pool = s, pool
	g := &guarded{bench: b, seen: s}
	g.restartAgent()
	return g
}

// restartAgent is an agent that was killed and started again.
func (g *guarded) restartAgent() {
	g.t.Helper()
	r := New(g.bench.opt)
	g.bench.Runtime = r
	if err := r.Restore(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	levels := map[sharing.GPURef]choice.Report{}
	for _, gpu := range g.gpus {
		levels[gpu.Ref()] = choice.Report{
			sharing.BackendDriver:   {Answer: choice.NotSupported, Reason: "an old driver"},
			sharing.BackendReactive: {Answer: choice.Supported},
		}
	}
	r.settings.SetInventory(g.gpus)
	if err := r.Attach(g.t.Context(), gpudriver.Attached{Driver: g.driver, GPUs: g.gpus, Levels: levels}); err != nil {
		g.t.Fatal(err)
	}
}

// share is a tenant with an attachment of so many GiB on the first GPU.
func (g *guarded) share(n int) (*tenant, lifecycle.Activated) {
	g.t.Helper()
	return g.shareAt(n, sharing.LevelUnknown)
}

// shareAt is share with --min-enforcement.
func (g *guarded) shareAt(n int, level sharing.Level) (*tenant, lifecycle.Activated) {
	g.t.Helper()
	p := g.tenant()
	req := gib(n)
	req.MinLevel = level
	req.UUIDs = []sharing.GPUID{g.gpus[0].UUID}
	a := g.activate(p, "", req)
	g.t.Cleanup(func() { p.end(); g.bench.Reconcile(g.t.Context()) })
	return p, a
}

// holds says what processes hold of the first GPU.
func (g *guarded) holds(uses ...gpudriver.ProcessUse) { g.driver.put(g.gpus[0].Ref(), uses) }

func gibs(p *tenant, n int) gpudriver.ProcessUse {
	return gpudriver.ProcessUse{PID: p.PID, Used: sharing.Bytes(n) * sharing.GiB, Known: true}
}

// looks lets the guard look so often.
func (g *guarded) looks(times int) {
	for range times {
		g.Guard.Check(g.t.Context())
	}
}

// dead waits for a process that was killed. The guard checks again and again: on a busy machine, the driver's answer
// can come too late for one check.
func (g *guarded) dead(p *tenant) {
	g.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	for range 12 {
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "killed") {
				g.t.Errorf("process %d ended with %v, want killed", p.PID, err)
			}
			return
		case <-time.After(5 * time.Second):
			g.looks(1)
		}
	}
	g.t.Fatalf("process %d lives a minute after it was to be killed", p.PID)
}

func (g *guarded) lives(p *tenant) {
	g.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil || strings.Contains(string(stat), ") Z ") {
		g.t.Errorf("process %d is dead: %v", p.PID, err)
	}
}

var (
	killing = config.Pool{Name: "a", Backends: []sharing.Backend{sharing.BackendDriver, sharing.BackendReactive},
		OverCap: config.OverCapKill}
	warning = config.Pool{Name: "a", Backends: killing.Backends, OverCap: config.OverCapWarn}
)

func (g *guarded) shown() status.Grant { return g.bench.State(g.t.Context()).Grants[0] }

func TestGuardKillsTheLargestOfAAttachmentOverItsCap(t *testing.T) {
	g := newGuarded(t, killing)
	small, active := g.share(4)
	neighbour, _ := g.share(4)
	large := g.tenant() // a child of the attachment, in a cgroup beneath it
	group, err := g.bench.opt.Cgroups.Create(filepath.Join(g.bench.opt.Parent, string(active.ID), "child"))
	if err != nil {
		t.Fatal(err)
	}
	if err := group.Add(large.PID); err != nil {
		t.Fatal(err)
	}
	if s := g.shown(); s.Level != sharing.LevelReactive ||
		!strings.HasPrefix(s.LevelReason, "driver: an old driver; the driver lists managed memory in no process") ||
		s.Backend != sharing.BackendReactive {
		t.Errorf("shown as %v: %q", s.Level, s.LevelReason)
	}
	g.holds(gibs(small, 1), gibs(large, 4), gibs(neighbour, 4))
	g.looks(1)
	g.lives(large)
	g.looks(1)
	g.dead(large)
	g.looks(3) // the driver has not taken the memory back yet
	g.holds(gibs(small, 1), gibs(neighbour, 4))
	g.looks(3)
	g.lives(small)
	g.lives(neighbour)
	if diff := cmp.Diff([]string{"over_cap"}, g.seen.killed); diff != "" || len(g.seen.spared) != 0 ||
		g.seen.looks == 0 {
		t.Errorf("%s, spared %v, %d looks", diff, g.seen.spared, g.seen.looks)
	}
	if diff := cmp.Diff([]sharing.Bytes{sharing.GiB}, g.seen.overs); diff != "" {
		t.Errorf("overshoot: %s", diff)
	}
}

func TestGuardWarns(t *testing.T) {
	g := newGuarded(t, warning)
	p, _ := g.share(4)
	warned := func() bool {
		return slices.ContainsFunc(g.bench.State(t.Context()).Warnings, func(w string) bool {
			return strings.Contains(w, "holds more than its 4GiB") && strings.Contains(w, "policy: warn")
		})
	}
	g.holds(gibs(p, 5))
	g.looks(4)
	if !warned() || g.shown().Level != sharing.LevelReactive {
		t.Errorf("no warning: %q", g.bench.State(t.Context()).Warnings)
	}
	g.holds(gibs(p, 4))
	g.looks(1)
	if warned() {
		t.Error("the warning stays")
	}
	g.lives(p)
	if len(g.seen.killed)+len(g.seen.spared) != 0 || len(g.seen.overs) != 1 {
		t.Errorf("killed %v, spared %v, reported %d times", g.seen.killed, g.seen.spared, len(g.seen.overs))
	}
	// The profile and the pool may change while it runs.
	g.holds(gibs(p, 5))
	g.bench.apply(config.Default(), killing)
	g.looks(2)
	g.dead(p)
}

// If the driver does not report a process's memory, or does not answer, no process is killed, and the level is unknown.
func TestGuardNeverKillsOnUnknownUse(t *testing.T) {
	tests := map[string]func(*guarded, *tenant){
		"use unknown": func(g *guarded,
			p *tenant) {
			g.holds(gpudriver.ProcessUse{PID: p.PID, Used: 70 * sharing.GiB})
		},
		"GPU that does not answer": func(g *guarded, p *tenant) {
			g.holds(gibs(p, 70))
			g.bench.SetHealth(g.gpus[0].UUID, sharing.HealthSuspect, "hangs")
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t, killing)
			p, _ := g.share(4)
			change(g, p)
			g.looks(5)
			g.lives(p)
			if s := g.shown(); s.Level != sharing.LevelUnknown || !strings.Contains(s.LevelReason, "does not tell") {
				t.Errorf("shown as %v: %q", s.Level, s.LevelReason)
			}
			if len(g.seen.killed)+len(g.seen.spared) != 0 {
				t.Errorf("killed %v, spared %v", g.seen.killed, g.seen.spared)
			}
			g.bench.SetHealth(g.gpus[0].UUID, sharing.HealthOK, "")
			g.holds(gibs(p, 1))
			g.looks(1)
			if s := g.shown(); s.Level != sharing.LevelReactive {
				t.Errorf("stays %v: %q", s.Level, s.LevelReason)
			}
		})
	}
}

func TestGuardGoesOnAfterARestart(t *testing.T) {
	g := newGuarded(t, killing)
	p, _ := g.share(4)
	g.holds(gibs(p, 5))
	g.looks(1)
	g.restartAgent()
	if s := g.shown(); s.Level != sharing.LevelReactive {
		t.Errorf("after a restart: %v", s.Level)
	}
	g.looks(1)
	g.lives(p)
	g.looks(1)
	g.dead(p)
}

// Without the backend in the pool's list a share has level none, where pool and process allow that, and is left alone.
// So it stays for those that had one then.
func TestGuardIsAskedFor(t *testing.T) {
	plain := config.Pool{Name: "a", Backends: []sharing.Backend{sharing.BackendDriver}, MinLevel: sharing.LevelNone,
		OverCap: config.OverCapKill}
	g := newGuarded(t, plain)
	p, _ := g.shareAt(4, sharing.LevelNone)
	g.holds(gibs(p, 5))
	g.looks(3)
	g.bench.apply(config.Default(), killing)
	g.looks(3)
	g.lives(p)
	if s := g.shown(); s.Level != sharing.LevelNone || g.seen.looks != 0 {
		t.Errorf("level %v, %d looks", s.Level, g.seen.looks)
	}
	if got := g.bench.State(t.Context()).GPUs[0].Levels; !slices.Contains(got, sharing.LevelReactive) {
		t.Errorf("levels on offer: %v", got)
	}
	q := g.tenant()
	req := gib(1)
	req.MinLevel = sharing.LevelDriver
	if _, err := g.bench.Reserve(t.Context(), q.Peer, "", req); !errors.Is(err, sharing.ErrUnsupported) ||
		!strings.Contains(err.Error(), "level reactive at most") || !strings.Contains(err.Error(), "an old driver") {
		t.Errorf("a demand for more: %v", err)
	}
	req.MinLevel = sharing.LevelReactive
	if _, err := g.bench.Reserve(t.Context(), q.Peer, "", req); err != nil {
		t.Errorf("a demand for reactive: %v", err)
	}
}

func TestGuardAndStrangers(t *testing.T) {
	pool := warning
	pool.OnUnmanagedProcess = config.UnmanagedKill
	own := filepath.Join(t.TempDir(), "nvidia-smi")
	tests := map[string]struct {
		pool   config.Pool
		change func(*guarded, *tenant)
		killed bool
	}{
		"killed":         {pool: pool, killed: true},
		"reported":       {pool: warning},
		"a driver's own": {pool: pool, change: func(g *guarded, p *tenant) { g.renamed(p, own) }},
		"of another agent": {pool: pool,
			change: func(g *guarded, p *tenant) { g.move(p, filepath.Dir(g.bench.opt.Parent)+"/other/k-1") }},
		"before all is known": {pool: pool,
			change: func(g *guarded, _ *tenant) { g.bench.Conditions.Set(conditions.Config, "not yet") }},
		"an unaccounted container": {pool: pool, change: func(g *guarded, _ *tenant) {
			g.bench.Recovery.Set(func(f *recovery.Facts) { f.Unaccounted = 1 })
		}},
		"after a damaged record": {pool: pool, change: func(g *guarded, _ *tenant) {
			if err := os.WriteFile(g.bench.opt.RecordPath, []byte("{"), 0o600); err != nil {
				g.t.Fatal(err)
			}
			g.restartAgent()
		}},
		"no such process": {pool: pool, change: func(g *guarded,
			p *tenant) {
			g.holds(gpudriver.ProcessUse{PID: 1 << 22, Known: true})
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.opt.Parent = filepath.Join(b.opt.Parent, "own")
			s := &seen{}
			b.opt.Observer, b.opt.Pool = s, tt.pool
			g := &guarded{bench: b, seen: s}
			g.restartAgent()
			mine, _ := g.share(4)
			p := g.tenant()
			g.holds(gibs(p, 1), gibs(mine, 1))
			if tt.change != nil {
				tt.change(g, p)
			}
			g.looks(3)
			if g.lives(mine); tt.killed {
				g.dead(p)
				if diff := cmp.Diff([]string{"unmanaged"}, s.killed); diff != "" {
					t.Error(diff)
				}
				return
			}
			g.lives(p)
			if len(s.killed) != 0 {
				t.Errorf("killed %v", s.killed)
			}
		})
	}
}

// A process of an attachment is unmanaged on a GPU that is not the attachment's.
func TestGuardAndTrespassers(t *testing.T) {
	pool := warning
	pool.OnUnmanagedProcess = config.UnmanagedKill
	g := newGuarded(t, pool)
	p, _ := g.share(4)
	g.driver.put(g.gpus[1].Ref(), []gpudriver.ProcessUse{gibs(p, 1)})
	g.looks(2)
	g.dead(p)
}

// renamed lets the tenant execute its program under another name.
func (g *guarded) renamed(p *tenant, path string) {
	g.t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err == nil {
		var data []byte
		if data, err = os.ReadFile(sleep); err == nil {
			err = os.WriteFile(path, data, 0o700)
		}
	}
	if err != nil {
		g.t.Fatal(err)
	}
	cmd := exec.Command(path, "600")
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	old := *p
	g.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); old.end() })
	p.PID, p.cmd = cmd.Process.Pid, cmd
	g.holds(gibs(p, 1))
}

// move puts the tenant into a separate cgroup, by its name below the hierarchy's mount.
func (g *guarded) move(p *tenant, name string) {
	g.t.Helper()
	group, err := g.bench.opt.Cgroups.Create(name)
	if err == nil {
		err = group.Add(p.PID)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { p.end(); _ = group.Remove() })
}

// A container of a pod is checked like any process, and its pod gets events.
func TestGuardAndPods(t *testing.T) {
	b := newPodBench(t)
	s := &seen{}
	b.opt.Observer, b.opt.Pool = s, killing
	g := &guarded{bench: b, seen: s}
	g.restartAgent()
	var told []string
	b.Runtime.Notify.ToPod = func(_ context.Context, ref sharing.ContainerRef, reason, message string) {
		told = append(told, ref.String()+" "+reason+" "+message)
	}
	c, d := b.run(b.app("p", "gpu-memory-gib:4")), b.run(b.app("q", "gpu-memory-gib:4"))
	if c.in.Level != sharing.LevelReactive || c.in.Env["KERF_LEVEL"] != "reactive" ||
		c.in.Placement[0].GPU != g.gpus[0].Ref() || d.in.Placement[0].GPU != g.gpus[0].Ref() {
		t.Fatalf("injected %+v and %+v", c.in, d.in)
	}
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", c.p.PID))
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Base(program)
	g.holds(gibs(c.p, 6), gibs(d.p, 4))
	g.looks(3)
	g.dead(c.p)
	g.lives(d.p)
	victim := fmt.Sprintf("Kerf killed process %d (%s) of the node, which used the most memory "+
		"(onOverCap: kill of pool a).", c.p.PID, program)
	if len(told) != 1 || !strings.HasPrefix(told[0], "ns/p/main "+guard.OverCapReason) ||
		!strings.Contains(told[0], "6GiB") || !strings.Contains(told[0], "4GiB") ||
		!strings.HasSuffix(told[0], victim) {
		t.Errorf("reported %q", told)
	}
	c.end()
	d.end()
}

// With the policy evict the pod is asked to be deleted, once in a while, and none of its processes is killed. What is
// in the way is shown.
func TestGuardEvicts(t *testing.T) {
	b := newPodBench(t)
	s := &seen{}
	pool := killing
	pool.OverCap = config.OverCapEvict
	b.opt.Observer, b.opt.Pool = s, pool
	g := &guarded{bench: b, seen: s}
	g.restartAgent()
	var asked []string
	answer := fmt.Errorf("no right: %w", sharing.ErrDenied)
	b.Runtime.Notify.Evictor = func(_ context.Context, ref sharing.ContainerRef) error {
		asked = append(asked, ref.String())
		return answer
	}
	look := func(times int) {
		g.looks(times)
		g.Guard.Wait()
	}
	warns := func(text string) bool {
		return slices.ContainsFunc(b.State(t.Context()).Warnings,
			func(w string) bool { return strings.Contains(w, text) })
	}
	c := b.run(b.app("p", "gpu-memory-gib:4"))
	g.holds(gibs(c.p, 6))
	look(5)
	if d := cmp.Diff([]string{"ns/p/main"}, asked); d != "" || !warns("cannot be evicted") || !warns("policy: evict") {
		t.Errorf("asked (-want +got):\n%s\nwarnings %q", d, b.State(t.Context()).Warnings)
	}
	g.lives(c.p)
	g.holds(gibs(c.p, 3))
	look(1)
	if warns("evict") {
		t.Errorf("within its cap: %q", b.State(t.Context()).Warnings)
	}
	answer = nil
	g.holds(gibs(c.p, 6))
	look(2)
	if len(asked) != 2 || warns("cannot be evicted") {
		t.Errorf("over it again: asked %q, warnings %q", asked, b.State(t.Context()).Warnings)
	}
	if d := cmp.Diff([]string{"over_cap refused", "over_cap"}, s.evicted); d != "" || len(s.killed) > 0 {
		t.Errorf("reported (-want +got):\n%s\nkilled %q", d, s.killed)
	}
	c.end()

	// A process that is of no pod has nothing to be evicted.
	p, _ := g.share(4)
	g.holds(gibs(p, 6))
	look(3)
	g.dead(p)
}

// end is the end of a container whose runtime's loops do not run.
func (c *container) end() {
	c.p.end()
	c.b.Runtime.Reconcile(c.b.t.Context())
	c.b.eventually("the cgroup is empty", func() bool { busy, err := c.group.Populated(); return err == nil && !busy })
	if err := c.group.Remove(); err != nil {
		c.b.t.Error(err)
	}
}

// The loop looks by itself, and at once after an attachment was taken.
func TestGuardLoop(t *testing.T) {
	g := newGuarded(t, killing)
	p, q := g.tenant(), g.tenant()
	g.loops()
	for _, one := range []*tenant{p, q} {
		id, err := g.bench.Reserve(t.Context(), one.Peer, "", sharing.Request{Memory: 4 * sharing.GiB, GPUs: 1,
			UUIDs: []sharing.GPUID{g.gpus[0].UUID}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.bench.Activate(t.Context(), one.Peer, id); err != nil {
			t.Fatal(err)
		}
	}
	g.holds(gibs(p, 5), gibs(q, 3))
	g.dead(p)
	g.lives(q)
	q.end()
	g.eventually("both attachments end", func() bool { return len(g.bench.State(t.Context()).Grants) == 0 })
}
