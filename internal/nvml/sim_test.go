// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/daemon"
	"github.com/kerf-gpu/kerf/sim/machine"
)

// sim is a simulated node of 8 GPUs. Its driver runs in this process. The library talks to it over sockets, as in any
// other process.
type sim struct {
	dir    string
	driver string
	stop   func(t *testing.T) // ends the driver and joins it
}

// newSim gives the library's folder the form of a node: DIR/lib next to DIR/dev.
func newSim(t *testing.T, library string) *sim {
	t.Helper()
	dir := filepath.Dir(filepath.Dir(library))
	return &sim{dir: dir, driver: filepath.Base(dir)}
}

func (s *sim) start(t *testing.T) {
	t.Helper()
	s.startMachine(t, "h100x8")
}

func (s *sim) startMachine(t *testing.T, name string) {
	t.Helper()
	m, err1 := machine.Load(name)
	drv, err2 := machine.FindDriver(s.driver)
	d, err3 := daemon.New(daemon.Options{Dir: s.dir, Machine: m, Driver: drv, Log: slog.New(slog.DiscardHandler)})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal("start the simulated driver:", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	s.stop = func(t *testing.T) {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error("stop the simulated driver:", err)
		}
	}
}

func (s *sim) set(ctx context.Context, t *testing.T, words ...string) {
	t.Helper()
	change, err := control.ParseSettings(words)
	if err == nil {
		err = control.Call(ctx, s.dir, control.Request{Command: control.CmdSet, Set: &change}, nil)
	}
	if err != nil {
		t.Fatalf("set %q: %v", words, err)
	}
}

// testDriver runs the whole adapter with a driver that other processes could see, too.
func testDriver(t *testing.T, library string) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	s := newSim(t, library)
	s.start(t)
	defer func() { s.stop(t) }()
	l, err := Open(ctx, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if sys := l.System(); sys.DriverVersion == "" || sys.NVMLVersion == "" || sys.CUDAVersion < 13000 {
		t.Errorf("system %+v", sys)
	}
	gpus, left, err := l.GPUs(ctx)
	if err != nil || len(left) != 0 || len(gpus) != 8 {
		t.Fatalf("%d gpus, left out %v, %v", len(gpus), left, err)
	}
	for i, g := range gpus {
		if g.NUMA != i/4 {
			t.Errorf("GPU %d is of NUMA node %d", i, g.NUMA)
		}
		if g.Architecture != "hopper" {
			t.Errorf("GPU %d has the architecture %q", i, g.Architecture)
		}
		if len(g.NVLinks) != 7 || g.MIG || g.Health != sharing.HealthOK || g.Reserved == 0 ||
			g.Usable() < 70*sharing.GiB {
			t.Errorf("gpu %+v", g)
		}
		m, err := l.Memory(ctx, g.UUID)
		if err != nil || m.Total != g.Memory || m.Used+m.Free+m.Reserved != m.Total {
			t.Errorf("memory %+v, %v", m, err)
		}
		if p, err := l.Processes(ctx, g.UUID); err != nil || len(p) != 0 {
			t.Errorf("processes %v, %v", p, err)
		}
	}
	first, second := gpus[0].UUID, gpus[1].UUID
	s.set(ctx, t, "gpu=0", "util=80")
	if u, err := l.Utilization(ctx, first); err != nil || u != 80 {
		t.Errorf("utilization %d, %v", u, err)
	}
	if p, err := l.ProcessTime(ctx, first, time.Now().Add(-time.Second)); err != nil || p.Known() || len(p.Rows) != 0 {
		t.Errorf("time of processes %v, %v", p, err)
	}
	testTelemetry(ctx, t, l, first)
	testSigns(ctx, t, l, s, first)
	if r, err := l.RecoveryAction(ctx, second); err != nil || r != RecoveryNone {
		t.Errorf("recovery %v, %v", r, err)
	}
	if err := l.Check(ctx, "GPU-00000000-0000-0000-0000-00000000dead"); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("unknown GPU: %v", err)
	}
	testComputeMode(ctx, t, l, first, second)
	testPowerLimit(ctx, t, l, first, second)
	testLimits(ctx, t, l, first, s.driver)
	testFaults(ctx, t, l, s, first, second)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	// The driver goes and comes back.
	s.stop(t)
	if _, err := Open(ctx, Options{}); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("Open without a driver: %v, want ErrUnavailable", err)
	}
	s.start(t)
	if l, err = Open(ctx, Options{}); err != nil {
		t.Fatal("Open again:", err)
	}
	if gpus, _, err := l.GPUs(ctx); err != nil || len(gpus) != 8 {
		t.Errorf("after the driver came back: %d gpus, %v", len(gpus), err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// testSigns reads what a GPU tells of its health. Its NVLinks are counted every few seconds alone.
func testSigns(ctx context.Context, t *testing.T, l *Library, s *sim, id sharing.GPUID) {
	t.Helper()
	want := func(when string, pending, failed, hot, brake bool) {
		t.Helper()
		got, err := l.Signs(ctx, id)
		if err != nil || got.RemapPending == nil || got.ThermalSlowdown == nil || got.Links == nil || *got.Links != 18 {
			t.Fatalf("%s: %+v, %v", when, got, err)
		}
		if *got.RemapPending != pending || *got.RemapFailed != failed || *got.ThermalSlowdown != hot ||
			*got.PowerBrake != brake {
			t.Errorf("%s: pending %t, failed %t, hot %t, brake %t", when, *got.RemapPending, *got.RemapFailed,
				*got.ThermalSlowdown, *got.PowerBrake)
		}
	}
	want("all well", false, false, false, false)
	s.set(ctx, t, "gpu=0", "remap.pending=true", "slowed=heat")
	want("bad", true, false, true, false)
	s.set(ctx, t, "gpu=0", "remap.pending=false", "remap.failed=true", "slowed=power")
	want("worse", false, true, false, true)
	s.set(ctx, t, "gpu=0", "remap.failed=false", "slowed=none")
}

// testTelemetry reads a GPU that is busy for 80 percent of the time, and runs nothing.
func testTelemetry(ctx context.Context, t *testing.T, l *Library, id sharing.GPUID) {
	got, err := l.Telemetry(ctx, id, TelemetryRequest{})
	if err != nil || !got.Listed || got.Timed || len(got.Residents) != 0 || len(got.Activity) != 0 ||
		got.Memory.Total < 70*sharing.GiB {
		t.Errorf("telemetry %+v, %v", got, err)
	}
	if got.Sensors[SensorBusy] != 80 || got.Sensors[SensorPower] == 0 ||
		got.Sensors[SensorPower] >= got.Sensors[SensorPowerLimit] {
		t.Errorf("sensors %v", got.Sensors)
	}
	if _, reported := got.Sensors[SensorPCIeReplays]; reported {
		t.Errorf("a sensor that the driver does not have is reported: %v", got.Sensors)
	}
	if in, err := l.InstanceMemory(ctx, id); err != nil || len(in) != 0 {
		t.Errorf("instances of a GPU that is not cut: %v, %v", in, err)
	}
}

func testComputeMode(ctx context.Context, t *testing.T, l *Library, id, other sharing.GPUID) {
	for _, want := range []sharing.ComputeMode{sharing.ComputeModeProhibited, sharing.ComputeModeExclusiveProcess,
		sharing.ComputeModeDefault} {
		if err := l.SetComputeMode(ctx, id, want); os.Geteuid() != 0 && errors.Is(err, sharing.ErrDenied) {
			return
		} else if err != nil {
			t.Errorf("set %v: %v", want, err)
		}
		if got, err := l.ComputeMode(ctx, id); err != nil || got != want {
			t.Errorf("compute mode %v, %v; want %v", got, err, want)
		}
		if got, err := l.ComputeMode(ctx, other); err != nil || got != sharing.ComputeModeDefault {
			t.Errorf("the other GPU's compute mode: %v, %v", got, err)
		}
	}
	if err := l.SetComputeMode(ctx, id, sharing.ComputeModeAsIs); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("no mode: %v, want ErrInvalid", err)
	}
}

func testPowerLimit(ctx context.Context, t *testing.T, l *Library, id, other sharing.GPUID) {
	before, err := l.PowerLimit(ctx, id)
	if err != nil || before.Now == 0 || before.Max < before.Now || before.Min >= before.Now {
		t.Fatalf("power limit %+v, %v", before, err)
	}
	if err := l.SetPowerLimit(ctx, id, before.Max+1000); os.Geteuid() == 0 &&
		(!errors.Is(err, sharing.ErrInvalid) || !strings.Contains(err.Error(), "watts")) {
		t.Errorf("beyond the most: %v, want ErrInvalid with the bounds", err)
	}
	for _, want := range []uint32{before.Min, before.Now} {
		if err := l.SetPowerLimit(ctx, id, want); os.Geteuid() != 0 && errors.Is(err, sharing.ErrDenied) {
			return
		} else if err != nil {
			t.Errorf("set %d: %v", want, err)
		}
		if got, err := l.PowerLimit(ctx, id); err != nil || got.Now != want {
			t.Errorf("power limit %+v, %v; want %d", got, err, want)
		}
		if got, err := l.PowerLimit(ctx, other); err != nil || got.Now != before.Now {
			t.Errorf("the other GPU's power limit: %+v, %v", got, err)
		}
	}
}

func testLimits(ctx context.Context, t *testing.T, l *Library, id sharing.GPUID, driver string) {
	if got, want := l.HasMemoryLimits(), driver == "r615"; got != want {
		t.Errorf("HasMemoryLimits %v, want %v", got, want)
	}
	if !l.HasMemoryLimits() {
		if err := l.SetMemoryLimit(ctx, id, "/sys/fs/cgroup/x", 0, sharing.GiB); !errors.Is(err,
			sharing.ErrUnsupported) {
			t.Errorf("SetMemoryLimit: %v, want ErrUnsupported", err)
		}
		return
	}
	h, err := cgroup.Default()
	if err != nil {
		t.Fatal(err)
	}
	g, err := h.Create(fmt.Sprintf("kerf-test-nvml-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}()
	if lim, err := l.MemoryLimit(ctx, id, g.Dir); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("no limit yet: %+v, %v; want ErrNotFound", lim, err)
	}
	if err := l.SetMemoryLimit(ctx, id, g.Dir, 0, 10*sharing.GiB); err != nil {
		t.Error(err)
	}
	if lim, err := l.MemoryLimit(ctx, id, g.Dir); err != nil || lim != (Limit{Hard: 10 * sharing.GiB}) {
		t.Errorf("limit %+v, %v; want 10 GiB", lim, err)
	}
	for what, tt := range map[string]struct {
		dir        string
		soft, hard sharing.Bytes
		want       error
		text       string
	}{
		"on the root cgroup":    {h.Mount, 0, sharing.GiB, sharing.ErrUnsupported, "takes no memory limit"},
		"on no cgroup":          {"/tmp", 0, sharing.GiB, sharing.ErrUnavailable, "cannot be opened"},
		"on a cgroup that ends": {g.Dir + "/gone", 0, sharing.GiB, sharing.ErrUnavailable, "cannot be opened"},
		"above the GPU's size":  {g.Dir, 0, sharing.TiB, sharing.ErrInvalid, "above the GPU's memory"},
		"soft above hard":       {g.Dir, 2 * sharing.GiB, sharing.GiB, sharing.ErrInvalid, "above the hard limit"},
	} {
		if err := l.SetMemoryLimit(ctx, id, tt.dir, tt.soft, tt.hard); !errors.Is(err, tt.want) ||
			!strings.Contains(err.Error(), tt.text) {
			t.Errorf("limit %s: %v, want %v", what, err, tt.want)
		}
	}
	if lim, err := l.MemoryLimit(ctx, id, g.Dir+"/gone"); !errors.Is(err, sharing.ErrUnavailable) ||
		!strings.Contains(err.Error(), "cannot be opened") {
		t.Errorf("limit of a cgroup that is gone: %+v, %v", lim, err)
	}
	if got, err := l.PutMemoryLimit(ctx, id, g.Dir, 0, 5*sharing.GiB); err != nil || got.Hard != 5*sharing.GiB ||
		got.Soft != 0 {
		t.Errorf("put a limit of 5 GiB: applied is %+v, %v", got, err)
	}
	if got, err := l.PutMemoryLimit(ctx, id, "/tmp", 0, sharing.GiB); !errors.Is(err, sharing.ErrUnavailable) ||
		got != (Limit{}) {
		t.Errorf("put a limit on a directory that is no cgroup: %+v, %v", got, err)
	}
	if err := l.SetMemoryLimit(ctx, id, g.Dir, 0, NoLimit); err != nil {
		t.Error(err)
	}
	if lim, err := l.MemoryLimit(ctx, id, g.Dir); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("after clearing: %+v, %v", lim, err)
	}
}

func testFaults(ctx context.Context, t *testing.T, l *Library, s *sim, first, second sharing.GPUID) {
	// Faults count from the moment on at which the first WaitEvent has registered, which cannot be seen: so one
	// is raised until it comes.
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	if ev, err := l.WaitEvent(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no fault: %+v, %v", ev, err)
	}
	cancel()
	for {
		s.set(ctx, t, "gpu=1", "xid=48")
		short, cancel := context.WithTimeout(ctx, time.Second)
		ev, err := l.WaitEvent(short)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			continue
		}
		if err != nil || ev.GPU != second || ev.XID != 48 || ev.GI != nil {
			t.Errorf("event %+v, %v; want XID 48 on %q", ev, err, second)
		}
		break
	}
	if r, err := l.RecoveryAction(ctx, second); err != nil || r != RecoveryReset {
		t.Errorf("recovery after XID 48: %v, %v; want a reset", r, err)
	}
	s.set(ctx, t, "gpu=0", "latency=1h")
	short, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
	start := time.Now()
	if err := l.Check(short, first); !errors.Is(err, sharing.ErrUnavailable) || time.Since(start) > 20*time.Second {
		t.Errorf("a driver that hangs: %v after %v", err, time.Since(start))
	}
	cancel()
	if err := l.Check(ctx, second); err != nil {
		t.Errorf("the other GPU meanwhile: %v", err)
	}
	s.set(ctx, t, "gpu=0", "latency=0s")
	s.set(ctx, t, "gpu=1", "lost=true")
	if err := l.Check(ctx, second); !errors.Is(err, sharing.ErrLost) {
		t.Errorf("lost GPU: %v, want ErrLost", err)
	}
	_, left, err := l.GPUs(ctx)
	var lo *LeftOut
	for _, e := range left {
		if errors.As(e, &lo) && lo.UUID == second && errors.Is(e, sharing.ErrLost) {
			return
		}
	}
	t.Errorf("inventory with a lost GPU: left out %v, %v", left, err)
}
