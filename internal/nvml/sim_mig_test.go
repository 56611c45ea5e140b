// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// testMIG creates instances on the first GPU of machines of each kind, as any other program would.
func testMIG(t *testing.T, library string) {
	if os.Geteuid() != 0 {
		t.Skip("only root may cut")
	}
	s := newSim(t, library)
	for name, reset := range map[string]bool{"a100x8": true, "a30x2": true, "h100x8": false, "b200x8": false,
		"rtxpro6000x4": false} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		s.startMachine(t, name)
		c := partitionTest{t, ctx, s, open4sim(ctx, t), machineOf(t, name), ""}
		c.run(reset)
		if err := c.l.Close(); err != nil {
			t.Error(err)
		}
		s.stop(t)
		cancel()
	}
	testNoMIG(t, s)
}

func open4sim(ctx context.Context, t *testing.T) *Library {
	l, err := Open(ctx, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func machineOf(t *testing.T, name string) machine.Machine {
	m, err := machine.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func testNoMIG(t *testing.T, s *sim) {
	s.startMachine(t, "t4x4")
	defer s.stop(t)
	l := open4sim(t.Context(), t)
	gpus, _, err := l.GPUs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := gpus[0].UUID
	_, err1 := l.MIGMode(t.Context(), id)
	_, err2 := l.SetMIGMode(t.Context(), id, true)
	_, err3 := l.MIGProfiles(t.Context(), id)
	_, err4 := l.MIGInstances(t.Context(), id)
	_, err5 := l.CreateGI(t.Context(), id, 0, 0, 8)
	for i, err := range []error{err1, err2, err3, err4, err5} {
		if !errors.Is(err, sharing.ErrUnsupported) {
			t.Errorf("call %d on a GPU without MIG: %v", i, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// cutTest is a library on a machine's first GPU.
type partitionTest struct {
	*testing.T
	ctx context.Context
	s   *sim
	l   *Library
	m   machine.Machine
	id  sharing.GPUID
}

func (c partitionTest) want(what string, err, want error) {
	c.Helper()
	if !errors.Is(err, want) {
		c.Errorf("%s: %s: %v, want %v", c.m.Name, what, err, want)
	}
}

func (c partitionTest) run(reset bool) {
	gpus, _, err := c.l.GPUs(c.ctx)
	if err != nil || len(gpus) == 0 {
		c.Fatal(err)
	}
	c.id = gpus[0].UUID
	needs, err := c.l.MIGNeedsReset(c.ctx, c.id)
	if needs != reset || err != nil {
		c.Errorf("%s: needs a reset: %v, %v", c.m.Name, needs, err)
	}
	if reset { // one that is passed through to a virtual machine waits for it, any other is reset by the call
		c.s.set(c.ctx, c.T, "gpu=0", "passthrough=true")
		c.mode(true, true)
		c.mode(false, true)
		c.s.set(c.ctx, c.T, "gpu=0", "passthrough=false")
	}
	c.mode(true, false)
	c.divide()
	profiles, err := c.l.MIGProfiles(c.ctx, c.id)
	c.want("profiles", err, nil)
	model := c.m.GPUs[0].Model
	var want []MIGProfile
	for _, p := range model.Profiles {
		want = append(want, MIGProfile{
			ID: int(p.ID), Name: p.Name, Compute: p.Slices, SMs: int(p.SMs), MaxInstances: p.Max, Memory: p.Memory,
			CopyEngines: int(p.CopyEngines),
			Decoders:    int(p.Decoders), Encoders: int(p.Encoders), JPEGs: int(p.JPEGs), OFAs: int(p.OFAs),
			Size: p.Size, Starts: p.Starts,
		})
	}
	byID := cmp.Transformer("byID", func(list []MIGProfile) map[int]MIGProfile {
		all := map[int]MIGProfile{}
		for _, p := range list {
			all[p.ID] = p
		}
		return all
	})
	if d := cmp.Diff(want, profiles, byID); d != "" {
		c.Errorf("%s: profiles (-want +got):\n%s", c.m.Name, d)
	}
	for _, p := range profiles {
		c.tryProfile(p, p.Starts[len(p.Starts)-1])
	}
	c.mode(false, false)
}

// ask sends one request to a GPU's socket, as a program of root's would.
func (s *sim) ask(t *testing.T, gpu int, req wire.Request) wire.Status {
	t.Helper()
	data, err := req.Encode()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: fmt.Sprintf("%s/dev/nvidia%d", s.dir, gpu),
		Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answer := make([]byte, 1<<16)
	_, err = conn.Write(data)
	n := 0
	if err == nil {
		n, err = conn.Read(answer)
	}
	var r wire.Response
	if err == nil {
		r, err = wire.DecodeResponse(answer[:n])
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.Status
}

// divide creates an instance of at least three slices, and gives it several compute instances, as other programs may.
// Each is reported, none as the whole, and a compute instance of the whole does not fit.
func (c partitionTest) divide() {
	c.Helper()
	profiles, err := c.l.MIGProfiles(c.ctx, c.id)
	c.want("profiles", err, nil)
	i := slices.IndexFunc(profiles, func(p MIGProfile) bool { return p.Compute >= 3 })
	if i < 0 {
		c.Fatalf("%s: no profile of three slices: %+v", c.m.Name, profiles)
	}
	p := profiles[i]
	gi, err := c.l.CreateGI(c.ctx, c.id, p.ID, p.Starts[0], p.Size)
	c.want("create "+p.Name, err, nil)
	for range 2 {
		if got := c.s.ask(c.T, 0, wire.Request{Op: wire.OpCICreate,
			Args: [wire.NArgs]uint64{uint64(gi), 1, wire.Unknown}}); got != wire.OK {
			c.Errorf("%s: a compute instance of one slice: %v", c.m.Name, got)
		}
	}
	_, err = c.l.CreateCI(c.ctx, c.id, gi)
	c.want("the whole next to parts", err, sharing.ErrExhausted)
	list, err := c.l.MIGInstances(c.ctx, c.id)
	if d := cmp.Diff([]MIGInstance{{GI: gi, Profile: p.ID, Start: p.Starts[0],
		Computes: []MIGCompute{{0, false}, {1, false}}}}, list); d != "" || err != nil {
		c.Errorf("%s: %s in parts: %v\n%s", c.m.Name, p.Name, err, d)
	}
	devices, err := c.l.MIGDevices(c.ctx, c.id)
	if len(devices) != 2 || devices[0].UUID == devices[1].UUID || devices[1].CI != 1 || err != nil {
		c.Errorf("%s: devices of parts %+v, %v", c.m.Name, devices, err)
	}
	memory, err := c.l.InstanceMemory(c.ctx, c.id)
	if len(memory) != 1 || memory[0].Memory.Total != p.Memory || err != nil {
		c.Errorf("%s: memory of an instance in parts, once: %+v, %v", c.m.Name, memory, err)
	}
	c.want("destroy with compute instances", c.l.DestroyGI(c.ctx, c.id, gi), sharing.ErrUnavailable)
	c.want("destroy the first", c.l.DestroyCI(c.ctx, c.id, gi, 0), nil)
	c.want("destroy the second", c.l.DestroyCI(c.ctx, c.id, gi, 1), nil)
	c.want("destroy", c.l.DestroyGI(c.ctx, c.id, gi), nil)
}

// mode switches, with a reset where the GPU wants one.
func (c partitionTest) mode(on, reset bool) {
	c.Helper()
	got, err := c.l.SetMIGMode(c.ctx, c.id, on)
	want := ActivationDone
	if reset {
		want = ActivationReset
	}
	mode, err2 := c.l.MIGMode(c.ctx, c.id)
	if err != nil || err2 != nil || got != want || mode != (MIGMode{on != reset, on}) {
		c.Errorf("%s: set mig mode %v: %v %+v, %v, %v", c.m.Name, on, got, mode, err, err2)
	}
	if reset {
		c.s.set(c.ctx, c.T, "gpu=0", "reset=true")
	}
}

// tryProfile creates an instance of the profile, checks it, and destroys it.
func (c partitionTest) tryProfile(p MIGProfile, start int) {
	c.Helper()
	_, err := c.l.CreateGI(c.ctx, c.id, p.ID, start, p.Size+1)
	c.want("a size that is none", err, sharing.ErrInvalid)
	_, err = c.l.CreateGI(c.ctx, c.id, 99, start, p.Size)
	c.want("a profile that is none", err, sharing.ErrInvalid)
	gi, err := c.l.CreateGI(c.ctx, c.id, p.ID, start, p.Size)
	c.want("create "+p.Name, err, nil)
	_, err = c.l.CreateGI(c.ctx, c.id, p.ID, start, p.Size)
	c.want("create on it", err, sharing.ErrExhausted)
	list, err := c.l.MIGInstances(c.ctx, c.id)
	if d := cmp.Diff([]MIGInstance{{GI: gi, Profile: p.ID, Start: start}}, list); d != "" || err != nil {
		c.Errorf("%s: %s without a compute instance: %v\n%s", c.m.Name, p.Name, err, d)
	}
	ci, err := c.l.CreateCI(c.ctx, c.id, gi)
	c.want("create a compute instance", err, nil)
	_, err = c.l.CreateCI(c.ctx, c.id, gi)
	c.want("create another one", err, sharing.ErrExhausted)
	list, err = c.l.MIGInstances(c.ctx, c.id)
	if d := cmp.Diff([]MIGInstance{{GI: gi, Profile: p.ID, Start: start, Computes: []MIGCompute{{ci, true}}}},
		list); d != "" || err != nil {
		c.Errorf("%s: %s: %v\n%s", c.m.Name, p.Name, err, d)
	}
	devices, err := c.l.MIGDevices(c.ctx, c.id)
	if len(devices) != 1 || devices[0].GI != gi || devices[0].CI != ci || !strings.HasPrefix(devices[0].UUID, "MIG-") ||
		err != nil {
		c.Errorf("%s: %s: devices %+v, %v", c.m.Name, p.Name, devices, err)
	}
	memory, err := c.l.InstanceMemory(c.ctx, c.id)
	if len(memory) != 1 || memory[0].GI != gi || memory[0].Memory.Total != p.Memory || err != nil {
		c.Errorf("%s: %s: memory %+v, %v", c.m.Name, p.Name, memory, err)
	}
	c.want("destroy with a compute instance", c.l.DestroyGI(c.ctx, c.id, gi), sharing.ErrUnavailable)
	c.want("destroy the compute instance", c.l.DestroyCI(c.ctx, c.id, gi, ci), nil)
	c.want("destroy it again", c.l.DestroyCI(c.ctx, c.id, gi, ci), sharing.ErrNotFound)
	c.want("destroy", c.l.DestroyGI(c.ctx, c.id, gi), nil)
	c.want("destroy again", c.l.DestroyGI(c.ctx, c.id, gi), sharing.ErrNotFound)
	if _, err := c.l.SetMIGMode(c.ctx, c.id, true); err != nil {
		c.Error(err)
	}
}
