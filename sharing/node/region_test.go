// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

var (
	preloading = config.Pool{Name: "a", Backends: []sharing.Backend{sharing.BackendDriver, sharing.BackendLibkerf}}
	both       = config.Pool{Name: "a", Backends: []sharing.Backend{sharing.BackendDriver, sharing.BackendLibkerf,
		sharing.BackendReactive}, OverCap: config.OverCapKill}
)

// newPreloaded is a bench on a driver that cannot limit memory, whose upkeep and guard look when the test says so.
func newPreloaded(t testing.TB, pool config.Pool) *guarded {
	t.Helper()
	b := newBench(t)
	s := &seen{}
	b.opt.Observer, b.opt.Pool = s, pool
	b.preloads()
	g := &guarded{bench: b, seen: s}
	g.restartPreloading()
	return g
}

func (g *guarded) restartPreloading() {
	g.t.Helper()
	g.restartAgent()
	for _, gpu := range g.gpus {
		g.bench.SetLevel(gpu.Ref(), choice.Report{
			sharing.BackendDriver:   {Answer: choice.NotSupported, Reason: "an old driver"},
			sharing.BackendLibkerf:  {Answer: choice.Supported},
			sharing.BackendReactive: {Answer: choice.Supported},
		})
	}
}

// The layout of lib/region.h, which a process writes to.
const (
	firstSlot = 64 + 16*128
	slotSize  = 320
	heldAt    = 32
	waitingAt = heldAt + (16+2)*8
)

// counts says what a process counts of the first GPU, in its slot, as the library in it would.
func (g *guarded) counts(a lifecycle.Activated, slot int, p *tenant, held sharing.Bytes) {
	g.t.Helper()
	g.countsWaiting(a, slot, p, held, 0)
}

// countsWaiting is counts of which a part is for a context that is there.
func (g *guarded) countsWaiting(a lifecycle.Activated, slot int, p *tenant, held, waiting sharing.Bytes) {
	g.t.Helper()
	start, err := process.StartOf(p.PID)
	if err != nil {
		g.t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(g.bench.regionOf(string(a.ID)), libkerf.UsageFileName), os.O_RDWR, 0)
	if err != nil {
		g.t.Fatal(err)
	}
	defer f.Close()
	add := func(at int64, n uint64) {
		var word [8]byte
		if _, err := f.ReadAt(word[:], at); err != nil {
			g.t.Fatal(err)
		}
		binary.LittleEndian.PutUint64(word[:], binary.LittleEndian.Uint64(word[:])+n)
		if _, err := f.WriteAt(word[:], at); err != nil {
			g.t.Fatal(err)
		}
	}
	at := int64(firstSlot + slot*slotSize)
	add(at, start<<22|uint64(p.PID))
	add(at+heldAt, uint64(held))
	add(at+waitingAt, uint64(waiting))
	add(64, uint64(held))
}

func (g *guarded) usage(a lifecycle.Activated) libkerf.Usage {
	g.t.Helper()
	open, err := libkerf.Open(g.bench.regionOf(string(a.ID)))
	if err != nil {
		g.t.Fatal(err)
	}
	defer open.Close()
	return open.Usage()[0]
}

func TestAAttachmentOfTheLibraryHasARegion(t *testing.T) {
	g := newPreloaded(t, preloading)
	p, a := g.share(4)
	dir := filepath.Join(g.bench.opt.Client.Dir, string(a.ID))
	want := []sharing.Mount{
		{Source: dir + "/region", Target: dir, ReadOnly: true},
		{Source: "/opt/kerf/v1/libkerf.so", Target: dir + "/libkerf.so", ReadOnly: true},
		{Source: dir + "/usage", Target: dir + "/usage"}, {Source: dir + "/preload", Target: "/etc/ld.so.preload",
			ReadOnly: true},
	}
	if d := cmp.Diff(want, a.Mounts); d != "" || a.Preload != libkerf.PreloadPath(dir) {
		t.Errorf("preload %q, mounts (-want +got):\n%s", a.Preload, d)
	}
	if text, err := os.ReadFile(dir + "/region/preload"); err != nil || string(text) != libkerf.PreloadPath(dir)+"\n" {
		t.Errorf("%q %v", text, err)
	}
	if s := g.shown(); s.Backend != sharing.BackendLibkerf || s.Level != sharing.LevelUserspace ||
		s.LevelReason != "driver: an old driver" {
		t.Errorf("shown as %v by %v: %q", s.Level, s.Backend, s.LevelReason)
	}
	if u := g.usage(a); u.Limit != 4*sharing.GiB || u.GPU != g.gpus[0].Ref() {
		t.Errorf("%+v", u)
	}
	p.end()
	g.bench.Reconcile(t.Context())
	g.bench.upkeep(t.Context())
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after its end: %v", err)
	}
}

// A program that cannot have the loader's file gets an error, and so does a reader of its status.
func TestPreloadingByEnvironment(t *testing.T) {
	g := newPreloaded(t, preloading)
	p := g.tenant()
	id, err := g.bench.Reserve(t.Context(), p.Peer, "", gib(1))
	if err != nil {
		t.Fatal(err)
	}
	a, err := g.bench.ActivateWith(t.Context(), p.Peer, id, lifecycle.ActivateOptions{NoPreloadFile: true})
	if err != nil || slices.ContainsFunc(a.Mounts,
		func(m sharing.Mount) bool { return m.Target == "/etc/ld.so.preload" }) {
		t.Errorf("%v, %v", err, a.Mounts)
	}
	if s := g.shown(); s.Level != sharing.LevelUserspace || !strings.Contains(s.LevelReason, "LD_PRELOAD") {
		t.Errorf("%v: %q", s.Level, s.LevelReason)
	}
}

// Memory of a killed process is returned, memory that only the driver reports is counted, and an agent that starts
// again goes on.
func TestUpkeep(t *testing.T) {
	g := newPreloaded(t, preloading)
	p, a := g.share(4)
	gone, b := g.share(4)
	g.counts(a, 0, p, sharing.GiB)
	g.counts(a, 1, gone, sharing.GiB) // not of this attachment: counts for nothing
	g.holds(gpudriver.ProcessUse{PID: p.PID, Used: 3 * sharing.GiB / 2, Known: true}, gibs(gone, 2))
	for range 2 {
		g.bench.upkeep(t.Context())
		if u := g.usage(a); u.Used != sharing.GiB || u.Overhead != sharing.GiB/2 {
			t.Errorf("%+v", u)
		}
		g.restartPreloading()
		if s := g.shown(); s.Level != sharing.LevelUserspace {
			t.Errorf("after a restart: %v, %q", s.Level, s.LevelReason)
		}
	}
	g.bench.upkeep(t.Context())
	g.bench.upkeep(t.Context())
	if u := g.usage(b); u.Overhead != 2*sharing.GiB {
		t.Errorf("of a process that does not count: %+v", u)
	}
	p.end()
	g.bench.upkeep(t.Context())
	// Memory that processes use and do not count does not set what others reserve for a context.
	if u := g.usage(a); u.Used != 0 || u.Overhead != 0 || u.Context != libkerf.UnknownContext || u.Least != 0 {
		t.Errorf("left after its end: %+v", u)
	}
	if _, c := g.share(2); g.usage(c).Context != libkerf.UnknownContext {
		t.Errorf("to put aside in an attachment that is new: %+v", g.usage(c))
	}
}

// What a process reserves for its context counts until the driver reports the context. Then the reported amount counts.
func TestUpkeepTakesContextsOver(t *testing.T) {
	g := newPreloaded(t, preloading)
	p, a := g.share(4)
	g.countsWaiting(a, 0, p, 3*sharing.GiB/2, sharing.GiB/2)
	g.holds()
	g.bench.upkeep(t.Context())
	if u := g.usage(a); u.Used != 3*sharing.GiB/2 || u.Overhead != 0 {
		t.Errorf("before the driver tells of it: %+v", u)
	}
	g.holds(gpudriver.ProcessUse{PID: p.PID, Used: 7 * sharing.GiB / 4, Known: true})
	g.bench.upkeep(t.Context())
	if u := g.usage(a); u.Used != sharing.GiB || u.Overhead != 3*sharing.GiB/4 {
		t.Errorf("afterwards: %+v", u)
	}
	if u := g.usage(a); u.Least != 3*sharing.GiB/4 {
		t.Errorf("the least that a context of this attachment took: %+v", u)
	}
	if _, b := g.share(2); g.usage(b).Context != libkerf.UnknownContext || g.usage(b).Least != 0 {
		t.Errorf("what others are to put aside: %+v", g.usage(b))
	}
}

// A process that uses the GPU and does not count is found at the second check. In a pool with the reactive backend, its
// grant is then limited by that backend, with all of its usage. Elsewhere nothing limits it.
func TestUncountedProcesses(t *testing.T) {
	for name, tt := range map[string]struct {
		pool  config.Pool
		level sharing.Level
	}{"not watched": {preloading, sharing.LevelNone}, "watched": {both, sharing.LevelReactive}} {
		t.Run(name, func(t *testing.T) {
			g := newPreloaded(t, tt.pool)
			p, a := g.share(4)
			honest, other := g.share(4)
			g.counts(other, 0, honest, 4*sharing.GiB)
			g.holds(gibs(p, 5), gibs(honest, 5))
			g.bench.upkeep(t.Context())
			g.looks(3) // over its cap, and of both it is not known yet that nothing refuses them memory
			if s := g.shown(); s.Level != sharing.LevelUserspace || len(g.seen.killed) != 0 {
				t.Errorf("after one look: %v", s.Level)
			}
			g.bench.upkeep(t.Context())
			g.bench.upkeep(t.Context())
			for _, s := range g.bench.State(t.Context()).Grants {
				switch {
				case s.ID == other.ID && s.Level != sharing.LevelUserspace:
					t.Errorf("the neighbour is %v: %q", s.Level, s.LevelReason)
				case s.ID == a.ID &&
					(s.Level != tt.level || !strings.Contains(s.LevelReason, lifecycle.Numbers([]int{p.PID}))):
					t.Errorf("%v: %q", s.Level, s.LevelReason)
				}
			}
			if g.seen.uncounted != 1 || !slices.ContainsFunc(g.bench.State(t.Context()).Warnings,
				func(w string) bool { return strings.Contains(w, "without the preloaded library") }) {
				t.Errorf("%d reported, warnings %q", g.seen.uncounted, g.bench.State(t.Context()).Warnings)
			}
			g.looks(3)
			g.lives(honest)
			if tt.level == sharing.LevelReactive {
				g.dead(p)
			} else {
				g.lives(p)
			}
		})
	}
}

// A region that is damaged while programs run is reported, and not created again under them.
func TestASpoiltRegion(t *testing.T) {
	for name, restart := range map[string]bool{"while the agent runs": false, "while it is away": true} {
		t.Run(name, func(t *testing.T) {
			g := newPreloaded(t, both)
			_, a := g.share(4)
			dir := g.bench.regionOf(string(a.ID))
			if err := os.Remove(filepath.Join(dir, libkerf.UsageFileName)); err != nil {
				t.Fatal(err)
			}
			if restart {
				g.restartPreloading()
			}
			g.bench.upkeep(t.Context())
			if s := g.shown(); s.Level != sharing.LevelUnknown || !strings.Contains(s.LevelReason, "damaged") {
				t.Errorf("%v: %q", s.Level, s.LevelReason)
			}
			if _, err := os.Stat(filepath.Join(dir, libkerf.UsageFileName)); err == nil {
				t.Error("it was created again")
			}
		})
	}
}

// Who cannot mount cannot be given the library: the next backend of the list holds it.
func TestWhoCannotMount(t *testing.T) {
	g := newPreloaded(t, both)
	but := choice.Without{sharing.BackendLibkerf: {Answer: choice.NotSupported, Reason: "no CAP_SYS_ADMIN"}}
	at := g.bench.placing()
	placed, err := at.Process(0, gib(1), gib(1), but)
	if err != nil {
		t.Fatal(err)
	}
	if by := placed.Enforced; by.Backend != sharing.BackendReactive ||
		!strings.Contains(by.Reason, "libkerf: no CAP_SYS_ADMIN") {
		t.Errorf("%v: %q", by.Backend, by.Reason)
	}
	req := gib(1)
	req.MinLevel = sharing.LevelUserspace
	if _, err := at.Process(0, req, req, but); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("a demand for client: %v", err)
	}
}

// A region of no grant, of a crash before the grant was on record, is removed.
func TestRegionsOfNobody(t *testing.T) {
	g := newPreloaded(t, preloading)
	_, a := g.share(1)
	left := filepath.Join(g.bench.opt.Client.Dir, "k-left")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	g.restartPreloading()
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
	if u := g.usage(a); u.Limit != sharing.GiB {
		t.Errorf("%+v", u)
	}
}

// Without the record an attachment of a process is rebuilt from its region: cgroup and limits are root's alone.
func TestARegionWithoutARecord(t *testing.T) {
	g := newPreloaded(t, preloading)
	p, a := g.share(3)
	g.counts(a, 0, p, sharing.GiB)
	g.bench.loseRecord()
	g.restartPreloading()
	s := g.shown()
	if s.Backend != sharing.BackendLibkerf || s.Level != sharing.LevelUserspace || !s.Recovered ||
		!strings.Contains(s.LevelReason, "its region") {
		t.Errorf("%v by %v: %q", s.Level, s.Backend, s.LevelReason)
	}
	if f := s.Placement; len(f) != 1 || f[0].GPU != g.gpus[0].Ref() || f[0].Memory != 3*sharing.GiB {
		t.Errorf("%+v", f)
	}
	g.bench.upkeep(t.Context())
	if u := g.usage(a); u.Used != sharing.GiB {
		t.Errorf("%+v", u)
	}
}

// A pod's container gets the mounts, and its next instance gets a separate region.
func TestContainersOfTheLibrary(t *testing.T) {
	b := newPodBench(t)
	b.opt.Pool = preloading
	b.preloads()
	b.Runtime = New(b.opt)
	if err := b.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	levels := map[sharing.GPURef]choice.Report{}
	for _, g := range b.gpus {
		levels[g.Ref()] = choice.Report{sharing.BackendDriver: {Answer: choice.NotSupported},
			sharing.BackendLibkerf: {Answer: choice.Supported}}
	}
	if err := b.Attach(t.Context(), gpudriver.Attached{Driver: b.driver, GPUs: b.gpus, Levels: levels}); err != nil {
		t.Fatal(err)
	}
	b.loops()
	ask := b.app("p", "gpu-memory-gib:10")
	c := b.run(ask)
	dir := filepath.Join(b.opt.Client.Dir, c.in.Grant)
	want := []sharing.Mount{
		{Source: dir + "/region", Target: "/usr/local/lib/kerf", ReadOnly: true},
		{Source: "/opt/kerf/v1/libkerf.so", Target: "/usr/local/lib/kerf/libkerf.so", ReadOnly: true},
		{Source: dir + "/region/usage", Target: "/usr/local/lib/kerf/usage"},
		{Source: dir + "/region/preload", Target: "/etc/ld.so.preload", ReadOnly: true},
	}
	if d := cmp.Diff(want, c.in.Mounts); d != "" || c.in.Level != sharing.LevelUserspace {
		t.Errorf("level %v, mounts (-want +got):\n%s", c.in.Level, d)
	}
	if text, err := os.ReadFile(dir + "/region/preload"); err != nil ||
		string(text) != libkerf.PreloadPath("/usr/local/lib/kerf")+"\n" {
		t.Errorf("%q %v", text, err)
	}
	c.remove()
	b.eventually("the end of the region with its attachment", func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist)
	})
	again := b.run(ask)
	if _, err := os.Stat(filepath.Join(b.regionOf(again.in.Grant), libkerf.UsageFileName)); err != nil {
		t.Errorf("of the next instance: %v", err)
	}
	again.remove()
	b.gone("p")
}

// The limit of an attachment changes while its programs run, and never below what they hold.
func TestLimitOfALibraryAttachment(t *testing.T) {
	g := newPreloaded(t, preloading)
	p, a := g.share(4)
	g.holds(gibs(p, 3))
	root := lifecycle.Peer{PID: os.Getpid()}
	if err := g.bench.Limit(t.Context(), root, a.ID, 6*sharing.GiB); err != nil || g.usage(a).Limit != 6*sharing.GiB {
		t.Errorf("%v, enforced %v", err, g.usage(a).Limit)
	}
	if err := g.bench.Limit(t.Context(), root, a.ID, 2*sharing.GiB); !errors.Is(err, sharing.ErrConflict) ||
		g.usage(a).Limit != 6*sharing.GiB {
		t.Errorf("below what is held: %v, enforced %v", err, g.usage(a).Limit)
	}
	g.counts(a, 0, p, 3*sharing.GiB)
	g.holds()
	if err := g.bench.Limit(t.Context(), root, a.ID, 2*sharing.GiB); !errors.Is(err, sharing.ErrConflict) ||
		g.usage(a).Limit != 6*sharing.GiB {
		t.Errorf("below what is reserved: %v, enforced %v", err, g.usage(a).Limit)
	}
	g.restartPreloading()
	if err := g.bench.Limit(t.Context(), root, a.ID, 3*sharing.GiB); err != nil || g.usage(a).Limit != 3*sharing.GiB {
		t.Errorf("%v, enforced %v", err, g.usage(a).Limit)
	}
}
