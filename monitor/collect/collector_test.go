// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/sharing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeNode is source, agent and kernel.
type fakeNode struct {
	readings []Reading
	grants   map[string]Grant
	away     bool
	dirs     map[int]string
	// watched are held, ended are those of them that have ended, and asked counts looks at cgroups.
	watched map[int]bool
	ended   []int
	asked   int
	closed  bool // no process can be held
}

func (f *fakeNode) Name() string   { return "fake" }
func (f *fakeNode) Driver() string { return "1.0" }
func (f *fakeNode) GPUs() []Info {
	var all []Info
	for _, r := range f.readings {
		all = append(all, r.Info)
	}
	return all
}

func (f *fakeNode) Read(_ context.Context, g Info) Reading {
	for _, r := range f.readings {
		if r.Info == g {
			return r
		}
	}
	return Reading{Err: sharing.ErrNotFound}
}
func (f *fakeNode) Grants() (all map[string]Grant, fresh bool) { return f.grants, !f.away }

func (f *fakeNode) Cgroup(pid int) (string, error) {
	f.asked++
	if d, ok := f.dirs[pid]; ok {
		return d, nil
	}
	return "", sharing.ErrNotFound
}

func (f *fakeNode) Watch(pid int) error {
	if f.closed {
		return sharing.ErrUnavailable
	}
	if f.watched == nil {
		f.watched = map[int]bool{}
	}
	f.watched[pid] = true
	return nil
}

func (f *fakeNode) Forget(pid int) { delete(f.watched, pid) }

func (f *fakeNode) Ended() []int {
	out := f.ended
	f.ended = nil
	for _, pid := range out {
		delete(f.watched, pid)
	}
	return out
}

func (f *fakeNode) collector(log *bytes.Buffer) (*Collector, *Broadcaster) {
	h := NewBroadcaster()
	return New(Options{Source: f, Grants: f, Processes: f, Broadcaster: h, Log: slog.New(slog.NewTextHandler(log,
			nil))}),
		h
}

func grant(id string, gpu sharing.GPUID) Grant {
	return Grant{ID: id, Name: id, Attachment: attribution.Attachment{Grant: id, Cgroup: "/cg/" + id,
		Shares: []attribution.Share{{GPU: sharing.GPURef{UUID: gpu}}}}, Caps: []Cap{{Memory: 10}}}
}

func TestCycle(t *testing.T) {
	lost := errors.New("lost")
	f := &fakeNode{
		readings: []Reading{
			{Info: Info{UUID: "GPU-1", Index: 1}, Err: lost},
			{Info: Info{UUID: "GPU-0"}, Device: attribution.Device{Memory: attribution.Known(sharing.Bytes(10)),
				Listed: true, Processes: []attribution.Process{
					{PID: 7, GI: attribution.NoInstance, Memory: attribution.Known(sharing.Bytes(4))},
					{PID: 8, GI: attribution.NoInstance, Memory: attribution.Known(sharing.Bytes(3))},
					{PID: 9, GI: attribution.NoInstance, Memory: attribution.Known(sharing.Bytes(1))},
				}}},
		},
		grants: map[string]Grant{"a": grant("a", "GPU-0"), "b": grant("b", "GPU-1")},
		dirs:   map[int]string{7: "/cg/a/below", 8: "/user"},
	}
	var log bytes.Buffer
	c, h := f.collector(&log)
	c.Cycle(t.Context())
	f.away, f.closed = true, true // the second cycle comes to the same
	c.Cycle(t.Context())
	s := h.Latest()
	if s.Seq != 2 || s.Source != "fake" || s.Driver != "1.0" || s.Agent || len(s.Grants) != 2 || len(s.GPUs) != 2 {
		t.Fatalf("%+v", s)
	}
	if g := s.GPUs[1]; !errors.Is(g.Err, lost) || len(g.Use.Grants) != 0 || g.Use.Rest.Memory.Known() {
		t.Errorf("a GPU that does not answer: %+v", g)
	}
	g := s.GPUs[0]
	if g.Use.Grants[0].Memory.Value != 4 || g.Use.Unmanaged.Memory.Value != 3 || g.Use.Rest.Memory.Value != 3 ||
		g.Use.Rest.Processes != 1 {
		t.Errorf("%+v", g.Use)
	}
	if got := g.Totals[attribution.Place{Grant: "a", GPU: sharing.GPURef{UUID: "GPU-0"}}].Peak.Value; got != 4 {
		t.Errorf("peak %d", got)
	}
	if n := strings.Count(log.String(), "found unmanaged process"); n != 1 {
		t.Errorf("an unmanaged process is logged %d times:\n%s", n, log.String())
	}
	if limit, ok := s.Grants["a"].CapOn(sharing.GPURef{UUID: "GPU-0"}); !ok || limit.Memory != 10 {
		t.Errorf("cap %+v, %t", limit, ok)
	}
	if _, ok := s.Grants["a"].CapOn(sharing.Instance{Profile: "1g.10gb"}.On("GPU-0")); ok {
		t.Error("a cap on an instance that is not the grant's")
	}
}

func TestEnergy(t *testing.T) {
	start := time.Now()
	read := func(f map[Field]float64) Reading { return Reading{Info: Info{UUID: "GPU-0"}, Fields: f} }
	type step struct {
		after  time.Duration
		fields map[Field]float64
		want   string
	}
	cases := map[string][]step{
		"its own counter": {
			{0, map[Field]float64{FieldEnergy: 5000, FieldPower: 100}, "-"},
			{time.Second, map[Field]float64{FieldEnergy: 5250, FieldPower: 100}, "0.25"},
		},
		"a counter that is read seldom": {
			{0, map[Field]float64{FieldEnergy: 5000, FieldPower: 100}, "-"},
			{time.Second, map[Field]float64{FieldEnergy: 5000, FieldPower: 100}, "100"},
			{2 * time.Second, map[Field]float64{FieldEnergy: 5000, FieldPower: 100}, "100"},
			{3 * time.Second, map[Field]float64{FieldEnergy: 335_000, FieldPower: 100}, "130"},
			{4 * time.Second, map[Field]float64{FieldEnergy: 335_000, FieldPower: 300}, "200"},
			{5 * time.Second, map[Field]float64{FieldEnergy: 485_000, FieldPower: 300}, "0"}, // 50 J too much so far
			{6 * time.Second, map[Field]float64{FieldEnergy: 785_000, FieldPower: 300}, "250"},
		},
		"a driver that was loaded again": {
			{0, map[Field]float64{FieldEnergy: 5000, FieldPower: 100}, "-"},
			{time.Second, map[Field]float64{FieldEnergy: 10, FieldPower: 200}, "150"},
		},
		"power": {
			{0, map[Field]float64{FieldPower: 100}, "-"}, {2 * time.Second, map[Field]float64{FieldPower: 200}, "300"},
			{3 * time.Second, nil, "-"}, {4 * time.Second, map[Field]float64{FieldPower: 200}, "-"},
		},
		"a gap": {{0, map[Field]float64{FieldPower: 100}, "-"}, {time.Minute, map[Field]float64{FieldPower: 100}, "-"}},
	}
	for name, steps := range cases {
		t.Run(name, func(t *testing.T) {
			c, _ := (&fakeNode{}).collector(&bytes.Buffer{})
			for i, s := range steps {
				got := "-"
				if e := c.energy(read(s.fields), start.Add(s.after)); e.Known {
					got = fmt.Sprint(float64(e.Value))
				}
				if got != s.want {
					t.Errorf("step %d: %s J, want %s", i, got, s.want)
				}
			}
		})
	}
}

func TestRunTakesSamplesAsOftenAsAReaderWants(t *testing.T) {
	f := &fakeNode{}
	c, h := f.collector(&bytes.Buffer{})
	c.opts.Interval = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	if _, _, err := h.Next(ctx, 0); err != nil {
		t.Error(err)
	}
	w := h.Every(ShortestInterval)
	if _, _, err := h.Next(ctx, 2); err != nil { // would come in an hour
		t.Error(err)
	}
	w.End()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
