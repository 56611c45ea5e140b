// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/failpoint"
	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	backendlibkerf "github.com/kerf-gpu/kerf/sharing/backend/libkerf"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/lists"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
	"github.com/kerf-gpu/kerf/sharing/node/place"
	"github.com/kerf-gpu/kerf/sharing/node/store"
	"github.com/kerf-gpu/kerf/test/eventually"
)

const least = sharing.MiB

// fakeCaps holds limits in a map, as the driver would, and can misbehave.
type fakeCaps struct {
	mu     sync.Mutex
	limits map[string]map[sharing.GPURef]sharing.Bytes
	fail   error // of Apply and Renew
	// broken is a GPU that is lost without a report: every call on it fails.
	broken sharing.GPURef
	silent error // of Read
	used   sharing.Bytes
	// by is what single cgroups use, in place of used.
	by map[string]sharing.Bytes
	// strict refuses a limit below the use.
	strict bool
	// onApply is called at the end of a successful Apply, with the lock held.
	onApply func()
}

func (c *fakeCaps) Least() sharing.Bytes { return least }

func (c *fakeCaps) Apply(_ context.Context, dir string, own []sharing.Share, others []sharing.GPURef) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.put(dir, own, others)
	if err != nil {
		delete(c.limits, dir)
	} else if c.onApply != nil {
		c.onApply()
	}
	return err
}

func (c *fakeCaps) Renew(_ context.Context, dir string, own []sharing.Share, others []sharing.GPURef) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.put(dir, own, others)
}

// put needs the lock.
func (c *fakeCaps) put(dir string, own []sharing.Share, others []sharing.GPURef) (err error) {
	if c.fail != nil {
		return c.fail
	}
	if c.limits[dir] == nil {
		c.limits[dir] = map[sharing.GPURef]sharing.Bytes{}
	}
	set := func(id sharing.GPURef, limit sharing.Bytes) {
		if id == c.broken {
			err = fmt.Errorf("limit on %q: %w", id, sharing.ErrLost)
			return
		}
		if c.strict && limit < c.useOf(dir) && limit != least {
			err = fmt.Errorf("limit on %q: %w", id, sharing.ErrInvalid)
			return
		}
		c.limits[dir][id] = limit
	}
	for _, f := range own {
		set(f.GPU, f.Memory)
	}
	for _, id := range others {
		set(id, least)
	}
	return err
}

func (c *fakeCaps) Read(_ context.Context, dir string, gpu sharing.GPURef) (sharing.Bytes, sharing.Bytes, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent != nil {
		return 0, 0, c.silent
	}
	if gpu == c.broken {
		return 0, 0, fmt.Errorf("limit of %q on %q: %w", dir, gpu, sharing.ErrLost)
	}
	limit, ok := c.limits[dir][gpu]
	if !ok {
		return 0, 0, fmt.Errorf("limit of %q on %q: %w", dir, gpu, sharing.ErrNotFound)
	}
	return limit, c.useOf(dir), nil
}

// useOf needs the lock.
func (c *fakeCaps) useOf(dir string) sharing.Bytes {
	if used, ok := c.by[dir]; ok {
		return used
	}
	return c.used
}

func (c *fakeCaps) Clear(_ context.Context, dir string, _ []sharing.GPURef) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.limits, dir)
	return nil
}

func (c *fakeCaps) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limits = map[string]map[sharing.GPURef]sharing.Bytes{}
}

func (c *fakeCaps) set(f func()) { c.mu.Lock(); defer c.mu.Unlock(); f() }

func (c *fakeCaps) count() int { c.mu.Lock(); defer c.mu.Unlock(); return len(c.limits) }

// fakeDriver has the processes that are put on its GPUs, until they end.
type fakeDriver struct {
	mu sync.Mutex // of on, for tests that change it while the loops run
	on map[sharing.GPURef][]gpudriver.ProcessUse
	// kept are the processes that stay on the GPUs when they have ended: others have their files open.
	kept map[int]bool
	// times is what ProcessTime tells of every GPU; nil: that it does not tell. Empty it has no row.
	times map[int]int
	// idle GPUs run nothing.
	idle bool
	// silent do not answer.
	silent map[sharing.GPURef]bool
	// nobodys is memory in use that no process has.
	nobodys map[sharing.GPURef]sharing.Bytes
}

func (*fakeDriver) Version() string { return "615.71.09" }

func (d *fakeDriver) Sample(ctx context.Context, id sharing.GPURef) (gpudriver.Sample, error) {
	if err := ctx.Err(); err != nil {
		return gpudriver.Sample{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.silent[id] {
		return gpudriver.Sample{}, sharing.ErrUnavailable
	}
	s := gpudriver.Sample{Used: d.nobodys[id], Utilization: 7}
	for _, p := range d.on[id] {
		if _, err := process.StartOf(p.PID); err != nil && !d.kept[p.PID] {
			continue
		}
		s.Used += p.Used
		s.Processes = append(s.Processes, p)
	}
	if d.idle {
		s.Utilization = 0
	}
	return s, nil
}

// put has a GPU list these processes.
func (d *fakeDriver) put(gpu sharing.GPURef, uses []gpudriver.ProcessUse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on[gpu] = uses
}

// Processes answers at once, so that its answer is in time whatever happened to the deadline. Tests count the guard's
// samples, and an empty one is none.
func (d *fakeDriver) Processes(ctx context.Context, id sharing.GPURef) ([]gpudriver.ProcessUse, error) {
	s, err := d.Sample(context.WithoutCancel(ctx), id)
	return s.Processes, err
}

func (d *fakeDriver) ProcessTime(context.Context, sharing.GPURef, time.Time) (sharing.TimeUse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.times == nil {
		return sharing.TimeUse{}, sharing.ErrUnsupported
	}
	var rows []sharing.TimeRow
	for pid, percent := range d.times { // of which more than 100 is no percentage
		rows = append(rows, sharing.TimeRow{PID: pid, At: time.Now(), SM: percent})
	}
	return sharing.UseOf(rows, time.Time{}), nil
}

func (*fakeDriver) Power(context.Context, sharing.GPURef) (float64, error) { return 300, nil }

// fakeKernel is the machine's, but for the device files, which are no test's: all processes have them open that are not
// in closed.
type fakeKernel struct {
	lists.Node
	mu     sync.Mutex
	closed map[int]bool
	// unread cannot be read.
	unread map[int]bool
	// former is who had a pid before: while it is set, that is whom it tells of.
	former map[int]former
}

// former is a process that had a pid before, in a cgroup.
type former struct {
	start uint64
	dir   string
}

func (k *fakeKernel) Cgroup(pid int) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f, ok := k.former[pid]; ok {
		return f.dir, nil
	}
	return k.Node.Cgroup(pid)
}

func (k *fakeKernel) Open(pid, _ int) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unread[pid] {
		return false, sharing.ErrUnavailable
	}
	return !k.closed[pid], nil
}

func (k *fakeKernel) Start(pid int) (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unread[pid] {
		return 0, sharing.ErrUnavailable
	}
	if f, ok := k.former[pid]; ok {
		return f.start, nil
	}
	return k.Node.Start(pid)
}

// set changes what it tells of a process.
func (k *fakeKernel) set(of map[int]bool, pid int, is bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	of[pid] = is
}

type nopObserver struct{}

func (nopObserver) Reserved(error) {}

func (nopObserver) Placed(string, string, error, time.Duration) {}

func (nopObserver) Activated(time.Duration, error)             {}
func (nopObserver) Ended()                                     {}
func (nopObserver) Recovered()                                 {}
func (nopObserver) CapRestored()                               {}
func (nopObserver) Limited(error)                              {}
func (nopObserver) Injected(time.Duration, error)              {}
func (nopObserver) Watched(time.Duration, int)                 {}
func (nopObserver) OverCap(time.Duration, sharing.Bytes)       {}
func (nopObserver) Killed(string, error)                       {}
func (nopObserver) Evicted(string, error)                      {}
func (nopObserver) Uncounted()                                 {}
func (nopObserver) MIGCreated(bool, time.Duration, error)      {}
func (nopObserver) MIGRefused(string)                          {}
func (nopObserver) MIGModeSwitched(bool, time.Duration, error) {}

// bench is a runtime over real cgroups and processes, and a driver of our own.
type bench struct {
	t      testing.TB
	dir    string
	opt    Options
	caps   *fakeCaps
	driver *fakeDriver
	kernel *fakeKernel
	gpus   []sharing.GPU
	// kubepods is where containers' cgroups are made, and ids counts them; see podharness_test.go.
	kubepods string
	ids      int
	*Runtime
}

func newBench(t testing.TB) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cgroups of our own need root:", sharing.ErrDenied)
	}
	groups, err := cgroup.Default()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dir: t.TempDir(), driver: &fakeDriver{on: map[sharing.GPURef][]gpudriver.ProcessUse{},
		kept: map[int]bool{}}, caps: &fakeCaps{limits: map[string]map[sharing.GPURef]sharing.Bytes{}}}
	for i := range 3 {
		b.gpus = append(b.gpus, sharing.GPU{
			UUID: sharing.GPUID(fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i)), Index: i, Minor: i,
			Model:  "NVIDIA H100 80GB HBM3",
			Memory: 80 * sharing.GiB, Reserved: sharing.GiB, Health: sharing.HealthOK,
			Hardware: sharing.Hardware{NUMA: -1},
		})
	}
	conf := config.Default()
	pool, err := conf.PoolFor(nil)
	if err != nil {
		t.Fatal(err)
	}
	ids := 0
	var mu sync.Mutex
	parent := fmt.Sprintf("kerf-test-%d-%s", os.Getpid(), filepath.Base(filepath.Dir(b.dir)))
	b.kernel = &fakeKernel{Node: lists.Node{CgroupOf: groups.OfProcess}, closed: map[int]bool{}, unread: map[int]bool{},
		former: map[int]former{}}
	b.opt = Options{
		Host: Host{Kernel: b.kernel, Cgroups: groups, Parent: parent, BootID: "this-boot", DevRoot: "/"},
		Log:  slog.New(slog.DiscardHandler), RecordPath: filepath.Join(b.dir, "record.json"), Version: "test",
		NewID: func() string {
			mu.Lock()
			defer mu.Unlock()
			ids++
			return fmt.Sprintf("k-%d-%d", time.Now().UnixNano(), ids)
		},
		Config: conf, Pool: pool, Observer: nopObserver{},
	}
	t.Cleanup(func() {
		if g, err := groups.Open(filepath.Join(groups.Mount, parent), 0); err == nil {
			if err := g.Remove(); err != nil {
				t.Errorf("cgroups left behind: %v", err)
			}
		}
	})
	return b
}

// preloads gives the bench the library, and removes the folders of grants at the end of the test.
func (b *bench) preloads() {
	b.t.Helper()
	b.opt.Client.Dir, b.opt.Client.Library = filepath.Join(b.dir, "client"), "/opt/kerf/v1/libkerf.so"
	b.t.Cleanup(func() {
		if err := libkerf.RemoveFolders(b.opt.Client.Dir, func(string) bool { return false }); err != nil {
			b.t.Error(err)
		}
	})
}

// pacing is the pacer's source of a runtime that has no loops.
func (b *bench) pacing() *backendlibkerf.Pacing { return b.Libkerf.NewPacing(timeHost{b.Runtime}) }

// regionOf is the region's folder of a grant.
func (b *bench) regionOf(grant string) string {
	return libkerf.UsageFileDir(filepath.Join(b.opt.Client.Dir, grant))
}

// start makes the runtime as an agent does, attached, with its loops running until the test ends.
func (b *bench) start() {
	b.t.Helper()
	b.Runtime = New(b.opt)
	if err := b.Restore(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.attach()
	b.loops()
}

// apply applies a configuration, as its source does.
func (b *bench) apply(c config.Config, pool config.Pool) {
	b.settings.Apply(c, pool, ConfigSource{})
	b.Conditions.ApplyConfig()
}

// SetLevel sets what a GPU can give, as the session does.
func (b *bench) SetLevel(gpu sharing.GPURef, rep choice.Report) {
	b.Amend(func(att *gpudriver.Attached) { att.Levels[gpu] = rep })
}

func (b *bench) attach() {
	b.t.Helper()
	b.settings.SetInventory(b.gpus)
	levels := map[sharing.GPURef]choice.Report{}
	for _, g := range b.gpus {
		levels[g.Ref()] = choice.Report{sharing.BackendDriver: {Answer: choice.Supported}}
	}
	if err := b.Attach(b.t.Context(), gpudriver.Attached{Driver: b.driver, Caps: b.caps, GPUs: b.gpus,
		Levels: levels}); err != nil {
		b.t.Fatal(err)
	}
}

// loops runs the runtime; the returned function stops it, as a SIGTERM would.
// upkeep corrects counters once.
func (b *bench) upkeep(ctx context.Context) { newCounters(b.Runtime).Reconcile(ctx) }

func (b *bench) loops() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	r := b.Runtime
	go func() { defer close(done); _ = r.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	b.t.Cleanup(stop)
	return stop
}

func (b *bench) failpoints(spec string) {
	b.t.Helper()
	set, err := failpoint.Parse(spec, failpoint.Actions{Exit: func(string) { b.t.Error("exit") }})
	if err != nil {
		b.t.Fatal(err)
	}
	b.opt.Failpoints = set
}

// tenant is a real process that can be put into a cgroup.
type tenant struct {
	lifecycle.Peer
	cmd *exec.Cmd
	end func()
}

func (b *bench) tenant() *tenant { return b.tenantWith() }

// tenantWith is a tenant that has files open besides.
func (b *bench) tenantWith(files ...*os.File) *tenant { return b.tenantRunning(files, "sleep", "600") }

func (b *bench) tenantRunning(files []*os.File, name string, args ...string) *tenant {
	b.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.ExtraFiles = files
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	h, err := process.Open(cmd.Process.Pid)
	if err != nil {
		b.t.Fatal(err)
	}
	defer h.Close()
	end := sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	b.t.Cleanup(end)
	return &tenant{Peer: lifecycle.Peer{PID: cmd.Process.Pid, Start: h.StartTime(), UID: 1000}, cmd: cmd, end: end}
}

func gib(n int) sharing.Request {
	return sharing.Request{Memory: sharing.Bytes(n) * sharing.GiB, GPUs: 1}
}

// activate grants and activates, and fails the test if either is refused.
func (b *bench) activate(p *tenant, name string, req sharing.Request) lifecycle.Activated {
	b.t.Helper()
	id, err := b.Reserve(b.t.Context(), p.Peer, name, req)
	if err != nil {
		b.t.Fatal(err)
	}
	a, err := b.Activate(b.t.Context(), p.Peer, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// eventually waits for a condition that the loops bring about.
func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	eventually.True(b.t, what, ok)
}

// consistent requires that the ledger is.
func (b *bench) consistent() {
	b.t.Helper()
	b.Store.Read(func(l store.Reader) {
		if err := l.Check(); err != nil {
			b.t.Error(err)
		}
	})
}

// placing is the node as a placement sees it now.
func (b *bench) placing() (at *place.Node) {
	b.Store.Read(func(l store.Reader) { at = b.Runtime.placing(l) })
	return at
}

// empty requires that nothing is held, capped, recorded or left in the cgroup tree.
func (b *bench) empty() {
	b.t.Helper()
	if g := b.State(b.t.Context()).Grants; len(g) != 0 {
		b.t.Errorf("%d grants left: %+v", len(g), g)
	}
	if n := b.caps.count(); n != 0 {
		b.t.Errorf("%d cgroups still have limits", n)
	}
	names, err := b.opt.Cgroups.Children(b.opt.Parent)
	if err != nil && !errors.Is(err, sharing.ErrNotFound) || len(names) != 0 {
		b.t.Errorf("cgroups left: %v %v", names, err)
	}
	b.eventually("the record is empty", func() bool { // it is written after the ledger has changed
		data, err := os.ReadFile(b.opt.RecordPath)
		return err == nil && strings.Contains(string(data), `"grants":[]`)
	})
	b.consistent()
	if b.Handles.Len() != 0 {
		b.t.Errorf("%d handles without a grant", b.Handles.Len())
	}
}
