// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/internal/serve/limit"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type driver struct{}

func (driver) Version() string { return "615.71.09" }

func (driver) Processes(context.Context, sharing.GPURef) ([]gpudriver.ProcessUse, error) {
	return nil, nil
}

func (driver) Sample(context.Context, sharing.GPURef) (gpudriver.Sample, error) {
	return gpudriver.Sample{Utilization: -1}, nil
}

func (driver) Power(context.Context, sharing.GPURef) (float64, error) {
	return 0, sharing.ErrUnsupported
}

func (driver) ProcessTime(context.Context, sharing.GPURef, time.Time) (sharing.TimeUse, error) {
	return sharing.TimeUse{}, sharing.ErrUnsupported
}

type observer struct{}

func (observer) Reserved(error)                              {}
func (observer) Activated(time.Duration, error)              {}
func (observer) Ended()                                      {}
func (observer) Recovered()                                  {}
func (observer) CapRestored()                                {}
func (observer) Limited(error)                               {}
func (observer) Injected(time.Duration, error)               {}
func (observer) Watched(time.Duration, int)                  {}
func (observer) OverCap(time.Duration, sharing.Bytes)        {}
func (observer) Killed(string, error)                        {}
func (observer) Evicted(string, error)                       {}
func (observer) Uncounted()                                  {}
func (observer) Placed(string, string, error, time.Duration) {}

func (observer) MIGCreated(bool, time.Duration, error)      {}
func (observer) MIGRefused(string)                          {}
func (observer) MIGModeSwitched(bool, time.Duration, error) {}

var gpu = sharing.GPURef{UUID: "GPU-00000000-0000-0000-0000-000000000001"}

// serve starts a server over a runtime with one GPU that no driver can cap, and returns a client.
func start(t *testing.T) (nodeapi.NodeClient, *node.Runtime) {
	t.Helper()
	return serveWith(t, nil)
}

// serveWith lets change alter the server before it serves.
func serveWith(t *testing.T, change func(*Server, *node.Runtime)) (nodeapi.NodeClient, *node.Runtime) {
	t.Helper()
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	conf := config.Default()
	pool, err := conf.PoolFor(nil)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := cgroup.Default()
	if err != nil {
		t.Fatal(err)
	}
	id := 0
	r := node.New(node.Options{
		Host: node.Host{Cgroups: groups, Parent: "kerf-test-none", BootID: "b", DevRoot: "/"},
		Log:  log, RecordPath: filepath.Join(dir, "record.json"),
		NewID: func() string { id++; return fmt.Sprintf("k-%d", id) }, Version: "test", Config: conf, Pool: pool,
		Observer: observer{},
	})
	if err := r.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	server := New(r, log)
	if change != nil {
		change(server, r)
	}
	go func() {
		done <- server.Serve(ctx, serve.NewShare(limit.Share{Bounds: bounds()}).Listen(l, serve.Rules{}))
	}()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "s"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return nodeapi.NewNodeClient(conn), r
}

// bounds are those of a server that only a test asks.
func bounds() limit.Bounds {
	return limit.Bounds{Conns: 64, PeerConns: 64, Requests: 64, PeerRequests: 64, Streams: 64, PeerStreams: 64,
		Bytes: 1 << 20, PeerBytes: 1 << 20}
}

func attach(t *testing.T, r *node.Runtime) {
	t.Helper()
	g := sharing.GPU{UUID: gpu.UUID, Model: "NVIDIA H100", Memory: 80 * sharing.GiB, Health: sharing.HealthOK,
		Hardware: sharing.Hardware{NUMA: -1}}
	err := r.Attach(t.Context(), gpudriver.Attached{
		Driver: driver{}, GPUs: []sharing.GPU{g}, Levels: map[sharing.GPURef]choice.Report{gpu: {
			sharing.BackendDriver:   {Answer: choice.NotSupported, Reason: "old driver"},
			sharing.BackendReactive: {Answer: choice.Supported},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%v (%v), want %v", got, err, want)
	}
}

func TestTheCallerIsTheKernelsWord(t *testing.T) {
	c, r := start(t)
	attach(t, r)
	in := &nodeapi.ReserveRequest{Name: "train", MemoryBytes: uint64(10 * sharing.GiB), Percent: 25}
	got, err := c.Reserve(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	g := got.GetGrant()
	if g.GetUserId() != uint32(os.Geteuid()) || g.GetState() != "Reserved" || g.GetLevel() != "reactive" ||
		!strings.HasPrefix(g.GetLevelReason(), "driver: old driver; libkerf: ") || g.GetBackend() != "reactive" ||
		g.GetMemoryBytes() != in.GetMemoryBytes() {
		t.Errorf("grant %v", g)
	}
	_, err = c.Reserve(t.Context(), in)
	wantCode(t, err, codes.AlreadyExists)
	for name, bad := range map[string]*nodeapi.ReserveRequest{
		"nothing requested": {}, "percent over 100": {Percent: 101}, "does not divide": {MemoryBytes: 1<<64 - 1,
			GpuCount: 2},
		"whole with memory": {Whole: true, MemoryBytes: 1},
		"level":             {MemoryBytes: 1 << 30, MinEnforcement: "best"}, "place": {MemoryBytes: 1 << 30,
			PlacementPolicy: "x"},
		"uuid":    {MemoryBytes: 1 << 30, Uuids: []string{"0"}},
		"profile": {Profile: "none-such"}, "name": {Name: "A B", MemoryBytes: 1 << 30},
		"gpus": {MemoryBytes: 1 << 30, GpuCount: 1 << 31},
	} {
		if _, err := c.Reserve(t.Context(), bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	less, err := c.Resize(t.Context(), &nodeapi.ResizeRequest{Id: g.GetId(), MemoryBytes: uint64(4 * sharing.GiB)})
	if err != nil || less.GetGrant().GetMemoryBytes() != uint64(4*sharing.GiB) || less.GetGrant().GetPercent() != 25 {
		t.Errorf("grant after its limit was changed: %v, %v", less, err)
	}
	_, err = c.Resize(t.Context(), &nodeapi.ResizeRequest{Id: g.GetId(), MemoryBytes: uint64(200 * sharing.GiB)})
	wantCode(t, err, codes.ResourceExhausted)
	_, err = c.Resize(t.Context(), &nodeapi.ResizeRequest{Id: g.GetId()})
	wantCode(t, err, codes.InvalidArgument)
	_, err = c.Resize(t.Context(), &nodeapi.ResizeRequest{Id: "k-none", MemoryBytes: 1 << 30})
	wantCode(t, err, codes.NotFound)
	if _, err = c.Release(t.Context(), &nodeapi.ReleaseRequest{Id: g.GetId()}); err != nil {
		t.Error(err)
	}
	_, err = c.Release(t.Context(), &nodeapi.ReleaseRequest{Id: g.GetId()})
	wantCode(t, err, codes.NotFound)
	_, err = c.Activate(t.Context(), &nodeapi.ActivateRequest{Id: g.GetId()})
	wantCode(t, err, codes.NotFound)
	_, err = c.Reserve(t.Context(), &nodeapi.ReserveRequest{MemoryBytes: 1 << 30, MinEnforcement: "driver"})
	wantCode(t, err, codes.FailedPrecondition)
	r.SetHealth(gpu.UUID, sharing.HealthSuspect, "a probe failed")
	_, err = c.Reserve(t.Context(), &nodeapi.ReserveRequest{MemoryBytes: 1 << 30})
	wantCode(t, err, codes.ResourceExhausted)
}

func TestWatchShowsEveryChange(t *testing.T) {
	c, r := start(t)
	bad, err := c.Watch(t.Context(), &nodeapi.WatchRequest{IntervalMs: 1})
	if err == nil {
		_, err = bad.Recv()
	}
	wantCode(t, err, codes.InvalidArgument)

	w, err := c.Watch(t.Context(), &nodeapi.WatchRequest{IntervalMs: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	first, err := w.Recv()
	if err != nil || first.GetReady() || len(first.GetNotReady()) == 0 {
		t.Fatalf("first picture %v %v", first, err)
	}
	_, err = c.Reserve(t.Context(), &nodeapi.ReserveRequest{MemoryBytes: 1 << 30})
	wantCode(t, err, codes.Unavailable)
	attach(t, r)
	for {
		p, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(p.GetGpus()) == 1 {
			return // long before the interval ended
		}
	}
}

func TestStatusOf(t *testing.T) {
	for err, want := range map[error]codes.Code{
		sharing.ErrInvalid: codes.InvalidArgument, sharing.ErrExhausted: codes.ResourceExhausted,
		sharing.ErrConflict: codes.AlreadyExists,
		sharing.ErrNotFound: codes.NotFound, sharing.ErrUnsupported: codes.FailedPrecondition,
		sharing.ErrUnavailable: codes.Unavailable,
		sharing.ErrDenied:      codes.PermissionDenied, sharing.ErrStale: codes.Aborted,
		sharing.ErrLost:          codes.Unavailable,
		context.DeadlineExceeded: codes.DeadlineExceeded, io.EOF: codes.Internal,
	} {
		if got := status.Code(statusOf(fmt.Errorf("x: %w", err))); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
