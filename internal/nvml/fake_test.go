// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// fakeDoor is a driver of fake GPUs. Set fields before use, or under mu.
type fakeAdapter struct {
	mu        sync.Mutex
	gpus      []*fakeGPU
	eventsErr error
	events    chan rawEvent
	waitErr   error
	waits     int
	waitGate  chan struct{} // a wait returns "nothing" when this has a token
	shut      int
	countGate chan struct{}
}

// fakeGPU is one GPU; a non-nil gate holds every call until it is closed.
type fakeGPU struct {
	id       identity
	mem      Memory
	migErr   error
	migOn    bool
	err      error // of memory and of the handle by index when early
	early    bool
	lists    [][]resident
	rec      Recovery
	recErr   error
	peers    []link
	util     int
	times    []sharing.TimeRow
	mode     sharing.ComputeMode
	power    PowerLimit
	noEvents bool
	gate     chan struct{}
	entered  chan struct{}
	limits   sync.Map // by directory
}

func (g *fakeGPU) setLimit(dir string, soft, hard sharing.Bytes) error {
	g.limits.Store(dir, Limit{Soft: soft, Hard: hard})
	return nil
}

func (g *fakeGPU) limit(dir string) (Limit, error) {
	if l, ok := g.limits.Load(dir); ok {
		return l.(Limit), nil
	}
	return Limit{}, check(getLimitsFunc, nvml.ERROR_NOT_FOUND)
}

func (d *fakeAdapter) system() (System, error) { return System{DriverVersion: "615.1"}, nil }

func (d *fakeAdapter) count() (int, error) {
	if d.countGate != nil {
		<-d.countGate
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.gpus), nil
}

func (d *fakeAdapter) byIndex(i int) (device, error) {
	d.mu.Lock()
	g := d.gpus[i]
	d.mu.Unlock()
	if g.early {
		return nil, g.err
	}
	return g, nil
}

func (d *fakeAdapter) byUUID(id sharing.GPUID) (device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.gpus {
		if g.id.uuid == id {
			return g, nil
		}
	}
	return nil, check("nvmlDeviceGetHandleByUUID", nvml.ERROR_NOT_FOUND)
}

func (d *fakeAdapter) hasLimits() bool { return true }

func (d *fakeAdapter) shutdown() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut++
	return nil
}

func (d *fakeAdapter) newEvents() (eventSet, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d, d.eventsErr
}

func (d *fakeAdapter) register(dev device) error {
	if dev.(*fakeGPU).noEvents {
		return check("nvmlDeviceRegisterEvents", nvml.ERROR_NOT_SUPPORTED)
	}
	return nil
}

func (d *fakeAdapter) wait() (rawEvent, bool, error) {
	d.mu.Lock()
	d.waits++
	err := d.waitErr
	d.mu.Unlock()
	if err != nil {
		return rawEvent{}, false, err
	}
	select {
	case ev := <-d.events:
		return ev, true, nil
	case <-d.waitGate:
		return rawEvent{}, false, nil
	}
}

func (d *fakeAdapter) free() error { return nil }

func (g *fakeGPU) pass() {
	if g.gate != nil {
		if g.entered != nil {
			g.entered <- struct{}{}
		}
		<-g.gate
	}
}

func (g *fakeGPU) identity() (identity, error)                      { g.pass(); return g.id, nil }
func (g *fakeGPU) mig() (bool, error)                               { return g.migOn, g.migErr }
func (g *fakeGPU) memory() (Memory, error)                          { g.pass(); return g.mem, g.err }
func (g *fakeGPU) processes() ([][]resident, error)                 { g.pass(); return g.lists, g.err }
func (g *fakeGPU) utilization() (int, error)                        { return g.util, g.err }
func (g *fakeGPU) processTime(time.Time) ([]sharing.TimeRow, error) { return g.times, g.err }

func (g *fakeGPU) recovery() (Recovery, error) { return g.rec, g.recErr }
func (g *fakeGPU) links() ([]link, error)      { return g.peers, nil }

func (g *fakeGPU) powerLimit() (PowerLimit, error)            { return g.power, g.err }
func (g *fakeGPU) setPowerLimit(mw uint32) error              { g.power.Now = mw; return g.err }
func (g *fakeGPU) computeMode() (sharing.ComputeMode, error)  { return g.mode, g.err }
func (g *fakeGPU) setComputeMode(m sharing.ComputeMode) error { g.mode = m; return g.err }

func lost() error { return check("nvmlDeviceGetMemoryInfo_v2", nvml.ERROR_GPU_IS_LOST) }

// gpu makes a healthy GPU number n.
func gpu(n int) *fakeGPU {
	return &fakeGPU{
		id: identity{
			uuid: sharing.GPUID(fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", n)), model: "NVIDIA H100", minor: n,
			pci: pciAddress{0, uint32(0x10 + n), 0}, numa: n / 4,
		},
		mem:    Memory{Total: 80 * sharing.GiB, Reserved: sharing.GiB, Free: 79 * sharing.GiB},
		recErr: absent("nvmlDeviceGetFieldValues"),
	}
}

func open4test(t *testing.T, opts Options, gpus ...*fakeGPU) (*Library, *fakeAdapter) {
	t.Helper()
	d := &fakeAdapter{gpus: gpus, events: make(chan rawEvent), waitGate: make(chan struct{})}
	l := newLibrary(d, opts, func() {})
	l.Faults.backOff = 0
	return l, d
}
