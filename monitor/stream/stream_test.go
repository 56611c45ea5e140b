// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/internal/serve/limit"
	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a collector over a node that never changes, with a server.
type node struct {
	*collect.Collector
	client telemetryapi.TelemetryClient
}

func (node) Name() string   { return "fake" }
func (node) Driver() string { return "1.0" }
func (node) GPUs() []collect.Info {
	return []collect.Info{{UUID: "GPU-0", Model: "H100"}, {UUID: "GPU-1", Index: 1}}
}

func (node) Read(_ context.Context, g collect.Info) collect.Reading {
	if g.Index == 1 {
		return collect.Reading{Err: sharing.ErrLost}
	}
	d := attribution.Device{Memory: attribution.Known(10 * sharing.GiB), Listed: true}
	for pid, memory := range map[int]sharing.Bytes{1: 4 * sharing.GiB, 2: 3 * sharing.GiB, 3: sharing.GiB} {
		d.Processes = append(d.Processes, attribution.Process{PID: pid, GI: attribution.NoInstance,
			Memory: attribution.Known(memory)})
	}
	return collect.Reading{Device: d, Fields: map[collect.Field]float64{collect.FieldMemoryTotal: 81920,
		collect.FieldTemperature: 50}}
}

func (node) Grants() (all map[string]collect.Grant, fresh bool) {
	grant := func(id, namespace string) collect.Grant {
		return collect.Grant{
			ID: id, Name: "name-" + id, Namespace: namespace, Pod: "p", Container: "c", Level: "driver",
			Attachment: attribution.Attachment{Grant: id, Cgroup: "/cg/" + id,
				Shares: []attribution.Share{{GPU: sharing.GPURef{UUID: "GPU-0"}}}},
			Caps: []collect.Cap{{Memory: 10 * sharing.GiB, Percent: 25,
				Events: collect.CapEvents{Refused: 3, Counted: true, Violations: 1, Delay: time.Second,
					Watched: true}}},
		}
	}
	return map[string]collect.Grant{"a": grant("a", "x"), "b": grant("b", "y")}, true
}

func (node) Watch(int) error { return nil }
func (node) Forget(int)      {}
func (node) Ended() []int    { return nil }

func (node) Cgroup(pid int) (string, error) {
	return map[int]string{1: "/cg/a", 2: "/cg/b", 3: "/user"}[pid], nil
}

// newNode serves it; samples are taken by Cycle.
func newNode(t *testing.T) node {
	t.Helper()
	hub := collect.NewBroadcaster()
	n := node{}
	n.Collector = collect.New(collect.Options{Source: n, Grants: n, Processes: n, Broadcaster: hub, Log: discard()})
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- New(hub).Serve(ctx, serve.NewShare(limit.Share{Bounds: bounds()}).Listen(l, serve.Rules{}))
	}()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	n.client = telemetryapi.NewTelemetryClient(conn)
	return n
}

// bounds are those of a server that only a test asks.
func bounds() limit.Bounds {
	return limit.Bounds{Conns: 64, PeerConns: 64, Requests: 64, PeerRequests: 64, Streams: 64, PeerStreams: 64,
		Bytes: 1 << 20, PeerBytes: 1 << 20}
}

func (n node) watch(t *testing.T, in *telemetryapi.WatchRequest) func() *telemetryapi.Sample {
	t.Helper()
	s, err := n.client.Watch(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return func() *telemetryapi.Sample {
		t.Helper()
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

func TestASampleAndItsParts(t *testing.T) {
	n := newNode(t)
	n.Cycle(t.Context())
	next := n.watch(t, &telemetryapi.WatchRequest{IntervalMs: 100})
	got := next()
	use := func(owner, grant, namespace string, gib float64, known string) *telemetryapi.Usage {
		u := &telemetryapi.Usage{Owner: owner, Processes: 1, MemoryBytes: &telemetryapi.Amount{Value: gib * (1 << 30),
			Attribution: known}, MemoryPeakBytes: &telemetryapi.Amount{Value: gib * (1 << 30), Attribution: known}}
		if grant != "" {
			u.Grant, u.GrantId, u.Namespace, u.Pod, u.Container, u.Level = "name-"+grant, grant, namespace, "p", "c",
				"driver"
			u.MemoryGuaranteedBytes, u.ComputeGrantedRatio = 10<<30, 0.25
			told := func(v float64) *telemetryapi.Amount {
				return &telemetryapi.Amount{Value: v, Attribution: "process"}
			}
			u.OomRefusals, u.CapViolations, u.DetectionSeconds = told(3), told(1), told(1)
		}
		return u
	}
	strangers, rest := use("unmanaged", "", "", 1, "process"), use("unattributed", "", "", 2, "unattributed")
	strangers.Pids, rest.Processes = []int32{3}, 0
	total, used, degrees := uint64(80<<30), uint64(10<<30), 50.0
	want := &telemetryapi.Sample{
		Sequence: 1, Source: "fake", DriverVersion: "1.0", AgentUp: true,
		Gpus: []*telemetryapi.GPU{
			{
				Uuid: "GPU-0", Model: "H100", MemoryTotalBytes: &total, MemoryAllocatableBytes: &total,
				MemoryUsedBytes: &used, TemperatureCelsius: &degrees,
				Usages: []*telemetryapi.Usage{use("grant", "a", "x", 4, "process"),
					use("grant", "b", "y", 3, "process"),
					strangers, rest},
			},
			{Uuid: "GPU-1", Index: 1, Error: "lost"},
		},
	}
	if d := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(&telemetryapi.Sample{},
		"at_unix_nanos")); d != "" {
		t.Error(d)
	}
}

func TestFilters(t *testing.T) {
	cases := map[string]struct {
		in   *telemetryapi.WatchRequest
		gpus int
		want []string
	}{
		"a namespace":    {&telemetryapi.WatchRequest{Namespaces: []string{"y"}}, 2, []string{"b"}},
		"a grant's name": {&telemetryapi.WatchRequest{Grants: []string{"name-a"}}, 2, []string{"a"}},
		"an id and a GPU": {&telemetryapi.WatchRequest{Grants: []string{"b"}, Gpus: []string{"GPU-0"}}, 1,
			[]string{"b"}},
		"nothing there": {&telemetryapi.WatchRequest{Grants: []string{"b"}, Namespaces: []string{"x"}}, 2, nil},
		"a GPU and all": {&telemetryapi.WatchRequest{Gpus: []string{"GPU-0"}}, 1,
			[]string{"a", "b", "unmanaged", "unattributed"}},
		"another GPU only": {&telemetryapi.WatchRequest{Gpus: []string{"GPU-1"}}, 1, nil},
	}
	n := newNode(t)
	n.Cycle(t.Context())
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := n.watch(t, c.in)()
			var got []string
			for _, u := range s.GetGpus()[0].GetUsages() {
				got = append(got, map[bool]string{true: u.GetGrantId(), false: u.GetOwner()}[u.GetOwner() == "grant"])
			}
			if d := cmp.Diff(c.want, got); d != "" || len(s.GetGpus()) != c.gpus {
				t.Errorf("%d GPUs, %s", len(s.GetGpus()), d)
			}
		})
	}
}

// Readers that want the same share one message, and no reader gets another's.
func TestReadersShare(t *testing.T) {
	hub := collect.NewBroadcaster()
	n := node{}
	n.Collector = collect.New(collect.Options{Source: n, Grants: n, Processes: n, Broadcaster: hub, Log: discard()})
	n.Cycle(t.Context())
	first := hub.Latest()
	n.Cycle(t.Context())
	s := New(hub)
	message := func(snapshot *collect.Snapshot, f filter) *serve.Encoded {
		t.Helper()
		m, err := s.message(snapshot, f, f.name())
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	one := message(hub.Latest(), filter{grants: []string{"a", "b"}})
	if two := message(hub.Latest(), filter{grants: []string{"b", "a", "a"}}); one != two {
		t.Error("the same is made twice")
	}
	for _, f := range []filter{{}, {namespaces: []string{"a", "b"}}, {grants: []string{"a b"}},
		{grants: []string{"a"}}} {
		if message(hub.Latest(), f) == one {
			t.Errorf("%+v gets what others want", f)
		}
	}
	late := message(first, filter{grants: []string{"a", "b"}})
	if late == one || message(hub.Latest(), filter{grants: []string{"a", "b"}}) != one {
		t.Error("a reader that is late changes what others get")
	}
}

func TestIntervals(t *testing.T) {
	n := newNode(t)
	for _, ms := range []uint32{1, 99, 60_001} {
		s, err := n.client.Watch(t.Context(), &telemetryapi.WatchRequest{IntervalMs: ms})
		if err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%d ms: %v", ms, err)
		}
	}
	n.Cycle(t.Context())
	seldom := n.watch(t, &telemetryapi.WatchRequest{IntervalMs: 60_000})
	if s := seldom(); s.GetSequence() != 1 {
		t.Errorf("first: %d", s.GetSequence())
	}
	for range 40 { // more than are kept, and none of them is wanted
		n.Cycle(t.Context())
	}
	often := n.watch(t, &telemetryapi.WatchRequest{IntervalMs: 100})
	if s := often(); s.GetSequence() != 41 || s.GetMissed() != 0 {
		t.Errorf("a reader that comes later begins with %d of 41, and has missed %d", s.GetSequence(), s.GetMissed())
	}
}

// TestASlowReaderIsToldWhatItMissed lets a server whose reader does not read go on.
func TestASlowReaderIsToldWhatItMissed(t *testing.T) {
	hub := collect.NewBroadcaster()
	n := node{}
	n.Collector = collect.New(collect.Options{Source: n, Grants: n, Processes: n, Broadcaster: hub, Log: discard()})
	ctx, cancel := context.WithCancel(t.Context())
	s := &slow{ctx: ctx, got: make(chan *telemetryapi.Sample), sends: make(chan struct{}, 100)}
	done := make(chan error, 1)
	go func() { done <- New(hub).Watch(&telemetryapi.WatchRequest{IntervalMs: 100}, s) }()
	n.Cycle(ctx)
	<-s.sends
	for range 50 { // of which the last 30 are kept while the reader has not taken the first
		n.Cycle(ctx)
	}
	first := <-s.got
	time.Sleep(100 * time.Millisecond) // so that there is one that is far enough from the first
	n.Cycle(ctx)
	next := <-s.got
	if first.GetMissed() != 0 || next.GetSequence() < first.GetSequence()+20 || next.GetMissed() < 20 {
		t.Errorf("after %d (%d missed) comes %d with %d missed", first.GetSequence(), first.GetMissed(),
			next.GetSequence(), next.GetMissed())
	}
	cancel()
	if err := <-done; status.Code(err) != codes.Canceled {
		t.Error(err)
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// slow is a stream that takes a sample when a reader receives it.
type slow struct {
	grpc.ServerStream
	ctx context.Context
	got chan *telemetryapi.Sample
	// sends has a token for each sample that was to be sent.
	sends chan struct{}
}

func (s *slow) Context() context.Context { return s.ctx }

// SendMsg decodes what it gets, as a reader does.
func (s *slow) SendMsg(m any) error {
	out := &telemetryapi.Sample{}
	if err := proto.Unmarshal(m.(*serve.Encoded).Bytes(), out); err != nil {
		return err
	}
	return s.Send(out)
}

func (s *slow) Send(m *telemetryapi.Sample) error {
	s.sends <- struct{}{}
	select {
	case s.got <- m:
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}
