// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/sharing"
)

type change struct {
	gpu    sharing.GPUID
	health sharing.Health
}

// fakeDriver answers from a map; a GPU that hangs answers when its caller's patience ends.
type fakeDriver struct {
	mu    sync.Mutex
	lost  map[sharing.GPUID]bool
	hangs map[sharing.GPUID]bool
	xids  chan change
	// inside are those of MIG instances.
	inside chan XID
	waits  int
	fail   error
}

func (d *fakeDriver) Check(ctx context.Context, id sharing.GPUID) error {
	d.mu.Lock()
	lost, hangs := d.lost[id], d.hangs[id]
	d.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return errHang
	}
	if lost {
		return errLost
	}
	return nil
}

func (d *fakeDriver) Recovery(context.Context, sharing.GPUID) Recovery { return nothing }

func (d *fakeDriver) Sensors(context.Context, sharing.GPUID) Sensors { return Sensors{} }

func (d *fakeDriver) NextXID(ctx context.Context) (XID, error) {
	d.mu.Lock()
	d.waits++
	err := d.fail
	d.mu.Unlock()
	if err != nil {
		return XID{}, err
	}
	select {
	case <-ctx.Done():
		return XID{}, ctx.Err()
	case x := <-d.inside:
		return x, nil
	case c := <-d.xids:
		return XID{c.gpu, WholeGPU, uint64(c.health)}, nil // the number of the XID travels in the health field
	}
}

func (d *fakeDriver) set(f func()) { d.mu.Lock(); defer d.mu.Unlock(); f() }

func start(t *testing.T, d *fakeDriver, gpus ...sharing.GPUID) (<-chan change, <-chan error) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	last, done := make(chan change, 100), make(chan error, 1)
	w := &Watch{
		Driver: d, GPUs: gpus, Log: slog.New(slog.DiscardHandler),
		Report: func(id sharing.GPUID, h sharing.Health, _ string) { last <- change{id, h} },
		Every:  5 * time.Millisecond, Deadline: 20 * time.Millisecond,
	}
	ctx, cancel := context.WithCancel(context.Background())
	joined := make(chan struct{})
	go func() { done <- w.Run(ctx); close(joined) }()
	t.Cleanup(func() { cancel(); <-joined })
	return last, done
}

func await(t *testing.T, last <-chan change, want change) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case got := <-last:
			if got == want {
				return
			}
		case <-deadline:
			t.Fatalf("never reported %v", want)
		}
	}
}

func TestAFaultMarksOneGPUAndItComesBack(t *testing.T) {
	d := &fakeDriver{lost: map[sharing.GPUID]bool{}, hangs: map[sharing.GPUID]bool{}, xids: make(chan change)}
	last, _ := start(t, d, "a", "b")
	await(t, last, change{"a", sharing.HealthOK})
	d.set(func() { d.lost["a"] = true })
	await(t, last, change{"a", sharing.HealthLost})
	d.set(func() { d.lost["a"] = false })
	await(t, last, change{"a", sharing.HealthOK})
	d.xids <- change{"b", 48}
	await(t, last, change{"b", sharing.HealthUnhealthy})
	d.xids <- change{"no-one", 48} // a GPU that is not watched is no crash
	d.set(func() { d.hangs["a"] = true })
	await(t, last, change{"a", sharing.HealthSuspect})
}

// A fault of a MIG instance counts for that instance until probes are clean, unless it is one of more than that.
func TestAFaultOfAnInstance(t *testing.T) {
	d := &fakeDriver{xids: make(chan change), inside: make(chan XID, 8)}
	t.Cleanup(func() { goleak.VerifyNone(t) })
	type faulty struct {
		Instance
		health sharing.Health
	}
	last, instances := make(chan change, 100), make(chan faulty, 100)
	w := &Watch{
		Driver: d, GPUs: []sharing.GPUID{"a", "b"}, Log: slog.New(slog.DiscardHandler), Every: 5 * time.Millisecond,
		Deadline:       time.Second,
		Report:         func(id sharing.GPUID, h sharing.Health, _ string) { last <- change{id, h} },
		ReportInstance: func(in Instance, h sharing.Health, _ string) { instances <- faulty{in, h} },
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	await(t, last, change{"a", sharing.HealthOK})
	d.inside <- XID{"a", 2, 31} // an application's
	d.inside <- XID{"a", 2, 48}
	for _, want := range []faulty{{Instance{"a", 2}, sharing.HealthUnhealthy}, {Instance{"a", 2}, sharing.HealthOK}} {
		select {
		case got := <-instances:
			if got != want {
				t.Errorf("reported %v, want %v", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("never reported %v", want)
		}
	}
	d.inside <- XID{"b", 1, 119}
	await(t, last, change{"b", sharing.HealthUnhealthy})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	close(last)
	for c := range last {
		if c.gpu == "a" && c.health != sharing.HealthOK {
			t.Errorf("the whole GPU: %v", c)
		}
	}
	if len(instances) > 0 {
		t.Errorf("reported more: %v", <-instances)
	}
}

func TestAllSilentMeansTheDriverIsGone(t *testing.T) {
	d := &fakeDriver{lost: map[sharing.GPUID]bool{"a": true, "b": true}, xids: make(chan change)}
	_, done := start(t, d, "a", "b")
	select {
	case err := <-done:
		if !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the watch went on")
	}
}

// A fault that the driver does not report itself must not be forgotten when the watch starts again on the same driver.
func TestAFaultOutlivesAWatch(t *testing.T) {
	broken := &Machine{}
	broken.Probe(Sample{})
	broken.XID(48)
	d := &fakeDriver{xids: make(chan change)}
	last := make(chan change, 100)
	w := &Watch{
		Driver: d, GPUs: []sharing.GPUID{"a", "b"}, Log: slog.New(slog.DiscardHandler),
		Machines: map[sharing.GPUID]*Machine{"a": broken},
		Report:   func(id sharing.GPUID, h sharing.Health, _ string) { last <- change{id, h} }, Every: time.Hour,
		Deadline: time.Second,
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	await(t, last, change{"a", sharing.HealthUnhealthy})
	await(t, last, change{"b", sharing.HealthOK})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// An event wait that only fails must not spin: one call, then the back-off.
func TestEventErrorsBackOff(t *testing.T) {
	d := &fakeDriver{fail: errHang, xids: make(chan change)}
	began := time.Now()
	last, _ := start(t, d, "a")
	await(t, last, change{"a", sharing.HealthOK})
	time.Sleep(50 * time.Millisecond)
	d.mu.Lock()
	defer d.mu.Unlock()
	took, most := time.Since(began), 1
	for at, pause := time.Second, time.Second; at <= took; most++ { // on a machine that stood still for so long
		pause *= 2
		at += pause
	}
	if d.waits > most {
		t.Errorf("%d waits in %v, want %d at most", d.waits, took, most)
	}
}

// A burst of events is logged once, counted in full, and ends in the state that its events cause, however slow the
// reader is.
func TestABurstIsCoalesced(t *testing.T) {
	var out bytes.Buffer
	d := &fakeDriver{xids: make(chan change)}
	counted := map[uint64]int{}
	last := make(chan change, 100)
	w := &Watch{
		Driver: d, GPUs: []sharing.GPUID{"a", "b"}, Log: slog.New(slog.NewTextHandler(&out, nil)), Every: time.Hour,
		Deadline: time.Second,
		Report:   func(id sharing.GPUID, h sharing.Health, _ string) { last <- change{id, h} },
		Fault:    func(_ sharing.GPUID, xid uint64, _ Class) { counted[xid]++ },
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	<-last // both are well, in any order
	<-last
	const burst = 10000
	for range burst {
		d.xids <- change{"a", 31}
	}
	d.xids <- change{"a", 48}
	await(t, last, change{"a", sharing.HealthUnhealthy})
	d.xids <- change{"", 62}
	await(t, last, change{"b", sharing.HealthSuspect})
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if counted[31] != burst || counted[48] != 1 || counted[62] != 1 {
		t.Errorf("counted %v", counted)
	}
	if n := strings.Count(out.String(), "xid=31"); n < 1 || n > 100 {
		t.Errorf("%d lines of log for one burst", n)
	}
}

func TestBurstsSayHowManyMore(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	b := bursts{log: slog.New(slog.NewTextHandler(&out, nil)), now: func() time.Time { return now }}
	for range 5 {
		b.tell("a", 31)
	}
	b.tell("b", 31)
	now = now.Add(burstQuiet)
	b.tell("a", 31)
	if got := strings.Count(out.String(), `msg="received XID events"`); got != 3 ||
		!strings.Contains(out.String(), "since=4") {
		t.Errorf("%d lines:\n%s", got, out.String())
	}
}
