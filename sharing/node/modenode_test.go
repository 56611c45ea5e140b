// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node/mode"
)

// turnMIG is a fakeMIG whose GPU changes its mode with demand.
type turnMIG struct {
	*fakeMIG
	b      *migBench
	on     bool
	busy   string
	turned time.Time
	refuse error
	turns  int
	// hold keeps a switch waiting until it is closed.
	hold chan struct{}
}

func isNoFit(err error) bool {
	_, is := errors.AsType[*allocator.NoFit](err)
	return is
}

// count is how often a GPU was to change.
func (m *turnMIG) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.turns
}

func (m *turnMIG) ModeSwitchable(gpu sharing.GPUID) bool { return gpu == m.gpu }

func (m *turnMIG) States() []mig.State {
	s := m.fakeMIG.States()[0]
	m.mu.Lock()
	defer m.mu.Unlock()
	s.On, s.ModeSwitchable, s.Busy, s.ModeSwitchedAt = m.on, true, m.busy, m.turned
	return []mig.State{s}
}

func (m *turnMIG) Candidate(gpu sharing.GPUID, profile string, start int, reserved []mig.Granted) mig.Candidate {
	m.mu.Lock()
	on := m.on
	m.mu.Unlock()
	if o := m.fakeMIG.Candidate(gpu, profile, start, reserved); on || o.Detail != "" {
		return o
	}
	return mig.Candidate{Detail: "is not in MIG mode, and changes to it when it is idle"}
}

// Turn takes stock at once.
func (m *turnMIG) SwitchMode(_ context.Context, gpu sharing.GPUID, on bool) error {
	m.mu.Lock()
	hold := m.hold
	m.mu.Unlock()
	if hold != nil {
		<-hold
	}
	m.mu.Lock()
	m.turns++
	if m.refuse != nil {
		defer m.mu.Unlock()
		return m.refuse
	}
	m.on, m.turned = on, time.Now()
	m.mu.Unlock()
	if grants, err := m.b.GrantsOn(gpu); err != nil || len(grants) > 0 {
		m.b.t.Errorf("a GPU is changed that has %v, %v", grants, err)
	}
	m.b.gpus[0].MIG = on
	m.b.attach()
	return nil
}

// newTurnBench is a pod bench with one GPU, whose mode is demand's to change.
func newTurnBench(t *testing.T) (*migBench, *turnMIG) {
	t.Helper()
	b := newMIGBench(t)
	b.gpus = b.gpus[:1]
	b.gpus[0].MIG = false
	b.opt.Pool = config.Pool{Name: "default", MIGIdleTTL: time.Minute}
	m := &turnMIG{fakeMIG: b.mig, b: b}
	b.begin()
	b.SetMIG(m)
	return b, m
}

// A pod that requests an instance gets it on an idle GPU that was not in MIG mode: the switch starts its creation. A
// pod that requests a share waits until the pool's minimum time in that mode is over.
func TestTurnsForPods(t *testing.T) {
	b, m := newTurnBench(t)
	inst := b.app("inst", "mig-3g:1")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{inst}); !isNoFit(err) ||
		strings.Contains(err.Error(), "never") {
		t.Fatalf("before the change: %v", err)
	}
	b.eventually("the instance", func() bool {
		g := b.grant(inst)
		return g != nil &&
			!g.Placement[0].MIG.None()
	})
	c := b.run(inst)
	share := b.app("share", "gpu-memory-gib:4")
	err := b.ReservePod(t.Context(), []sharing.ContainerRequest{share})
	if !isNoFit(err) || !strings.Contains(err.Error(), "is held by pod ns/inst") {
		t.Errorf("with an instance in use: %v", err)
	}
	c.remove()
	b.PodRemoved(inst.Ref.PodUID)
	b.eventually("the end of the grant", func() bool { return b.grant(inst) == nil })
	m.set(func() { m.made = map[sharing.Instance]string{} })
	if err = b.ReservePod(t.Context(), []sharing.ContainerRequest{share}); !isNoFit(err) ||
		!strings.Contains(err.Error(), "keeps it for 1m0s") {
		t.Errorf("while the mode is kept: %v", err)
	}
	b.eventually("a warning", func() bool {
		for _, w := range b.State(t.Context()).Warnings {
			if strings.Contains(w, "ns/share") && strings.Contains(w, "keeps it for") {
				return true
			}
		}
		return false
	})
	if m.count() != 1 {
		t.Errorf("%d changes", m.count())
	}
	m.set(func() { m.turned = time.Now().Add(-time.Hour) })
	b.eventually("the share", func() bool { g := b.grant(share); return g != nil && g.Placement[0].MIG.None() })
	b.run(share)
	if p := b.Modes.Pending(); len(p) != 0 {
		t.Errorf("left: %v", p)
	}
}

// No mode switch happens on a busy GPU, on one that failed a moment ago, and for a request that no switch would serve.
// A deleted pod is forgotten.
func TestTurnsNothing(t *testing.T) {
	b, m := newTurnBench(t)
	m.set(func() { m.busy = "is held by process 7" })
	ask := b.app("inst", "mig-1g:1")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{ask}); !isNoFit(err) ||
		!strings.Contains(err.Error(), "GPU 0 is held by process 7") {
		t.Errorf("%v", err)
	}
	b.Modes.Switch(t.Context())
	if m.count() != 0 {
		t.Error("a busy GPU was changed")
	}
	b.PodRemoved(ask.Ref.PodUID)
	m.set(func() { m.busy = "" })
	b.Modes.Switch(t.Context())
	if m.count() != 0 {
		t.Error("a GPU was changed for a pod that is gone")
	}
	large := b.app("large", "gpu-memory-gib:400")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{large}); !isNoFit(err) {
		t.Errorf("%v", err)
	}
	b.Modes.Switch(t.Context())
	if m.count() != 0 {
		t.Error("a GPU was changed in vain")
	}
	m.set(func() { m.refuse = fmt.Errorf("IN_USE: %w", sharing.ErrUnavailable) })
	_ = b.ReservePod(t.Context(), []sharing.ContainerRequest{ask})
	b.eventually("a try", func() bool { return m.count() == 1 })
	b.eventually("its end", func() bool { return len(b.Modes.Pending()) == 0 })
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{ask}); !isNoFit(err) ||
		!strings.Contains(err.Error(), "IN_USE") {
		t.Errorf("after a change that failed: %v", err)
	}
	b.Modes.Switch(t.Context())
	if m.count() != 1 {
		t.Error("it is tried again at once")
	}
	// As it is, it can be shared all the same.
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{b.app("share", "gpu-memory-gib:4")}); err != nil {
		t.Error(err)
	}
}

// While a GPU switches its mode, it gives no share, kubelet waits, and its free amounts in the cluster are zero.
func TestNothingOfAGPUThatChanges(t *testing.T) {
	b, m := newTurnBench(t)
	if g := b.LedgerState().GPUs[0]; g.FreeMemory == 0 || g.MIG.Error != "" || g.SwitchableTo != mode.MIG {
		t.Errorf("before: %+v", g)
	}
	hold := make(chan struct{})
	m.set(func() { m.hold = hold })
	inst := b.app("inst", "mig-3g:1")
	if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{inst}); !isNoFit(err) {
		t.Fatal(err)
	}
	b.eventually("the switch", func() bool { return len(b.Modes.Pending()) == 1 })
	for _, amount := range []string{"gpu-memory-gib:4", "gpu:1", "mig-1g:1"} {
		if err := b.ReservePod(t.Context(), []sharing.ContainerRequest{b.app("p-"+amount[:3],
			amount)}); !isNoFit(err) ||
			!strings.Contains(err.Error(), "changes to MIG mode for pod ns/inst") {
			t.Errorf("%s: %v", amount, err)
		}
		b.gone("p-" + amount[:3])
	}
	g := b.LedgerState().GPUs[0]
	if g.FreeMemory != 0 || g.FreePercent != 0 || g.MIG.Error == "" || g.SwitchableTo != mode.None ||
		len(b.PendingInstances()) != 1 {
		t.Errorf("%+v, pending %v", g, b.PendingInstances())
	}
	b.PodRemoved(inst.Ref.PodUID)
	close(hold)
	b.eventually("the end of the switch", func() bool { return len(b.Modes.Pending()) == 0 })
	if g := b.LedgerState().GPUs[0]; g.MIG.Error != "" || !g.GPU.MIG || len(b.PendingInstances()) != 0 {
		t.Errorf("afterwards: %+v", g)
	}
	b.run(b.app("next", "mig-1g:1"))
}

// A process waits for the switch, and gets an error at once if no switch would help.
func TestTurnsForAProcess(t *testing.T) {
	b, m := newTurnBench(t)
	p := b.tenant()
	req := sharing.Request{Kind: sharing.KindMIG, GPUs: 1, MIG: "1g"}
	id, err := b.Reserve(t.Context(), p.Peer, "one", req)
	if err != nil || m.count() != 1 {
		t.Fatalf("%v after %d changes", err, m.count())
	}
	other := b.tenant()
	if _, err := b.Reserve(t.Context(), other.Peer, "two", sharing.Request{Kind: sharing.KindShared, GPUs: 1,
		Memory: 4 * sharing.GiB}); !isNoFit(err) || !strings.Contains(err.Error(), "grant "+string(id)) {
		t.Errorf("%v", err)
	}
}
