// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kerf-gpu/kerf/mig/exec"
	"github.com/kerf-gpu/kerf/sharing"
)

// stopPatience is how long Stop waits for what is under way, before it interrupts that, and stopPoll how often it
// checks.
const (
	stopPatience = 10 * time.Second
	stopPoll     = 10 * time.Millisecond
)

// SwitchMode changes the MIG mode of an idle GPU whose mode follows demand. It first destroys Kerf's unused instances.
// If it fails, it restores the GPU or reports an error for it. The error is sharing.ErrNotFound for no such GPU, and
// sharing.ErrDenied if the pool allows no mode switch or no reset. It is sharing.ErrConflict if something is on it,
// sharing.ErrUnavailable if it has an error or is in use, and else the driver's.
func (m *Manager) SwitchMode(ctx context.Context, gpu sharing.GPUID, on bool) error {
	p := m.page(gpu)
	if p == nil {
		return fmt.Errorf("change mig mode of gpu %q: %w", string(gpu), sharing.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(ctx, tickDeadline)
	defer cancel()
	if err := p.begin(); err != nil {
		return err
	}
	defer p.work.Unlock()
	err := p.turn(ctx, on)
	p.refresh(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	p.note(func(s *seen) { s.turned = m.opt.Now() })
	m.Wake()
	m.opt.Log.Info("switched MIG mode", "gpu", string(gpu), "on", on)
	return nil
}

// ModeSwitchable reports whether demand may change the GPU's mode. It asks no driver.
func (m *Manager) ModeSwitchable(gpu sharing.GPUID) bool {
	p := m.page(gpu)
	if p == nil {
		return false
	}
	return p.switches()
}

// switches reports whether demand may change the mode.
func (p *page) switches() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.turns
}

// turn needs p.work.
func (p *page) turn(ctx context.Context, on bool) error {
	if !p.switches() || !p.mayTurn(!on) {
		return fmt.Errorf("change mig mode of gpu %q: its pool does not leave it to demand: %w", string(p.gpu.ID),
			sharing.ErrDenied)
	}
	if !on {
		if busy := p.keeps(ctx, p.opt.Now()); busy != "" {
			return fmt.Errorf("change mig mode of gpu %q: it %s: %w", string(p.gpu.ID), busy, sharing.ErrConflict)
		}
		if err := p.carryOut(ctx, nil); err != nil {
			return err
		}
	}
	return p.exec.SwitchMode(ctx, p.gpu, on, p.opt.Pool().AllowGPUReset) //nolint:wrapcheck // it says what and where
}

// mayTurn reports whether demand may change the GPU's mode, which is this one now. A MIG mode that Kerf has not set
// stays. It needs p.work.
func (p *page) mayTurn(on bool) bool {
	pool := p.opt.Pool()
	return p.wanted(p.facts).Auto && (!p.reset || pool.AllowGPUReset) && (!on || p.exec.SwitchedByKerf(p.gpu))
}

// keeps says what keeps a GPU's mode as it is; empty where nothing does. It needs p.work.
func (p *page) keeps(ctx context.Context, now time.Time) string {
	p.mu.Lock()
	expired := p.expired(now)
	var why string
	switch {
	case p.trouble != "":
		why = "is in trouble: " + p.trouble
	case len(p.foreign) > 0:
		why = "has instances that Kerf did not make"
	case len(p.mine) > len(expired):
		why = "has instances that are used, or kept for the next one"
	}
	p.mu.Unlock()
	if why != "" {
		return why
	}
	switch held, err := p.exec.Users(ctx, p.gpu); {
	case err != nil:
		return "may be in use: " + err.Error()
	case len(held) > 0:
		return "is held by " + strings.Join(held[:1], "")
	}
	return ""
}

// begin takes p.work, but for a Manager that was stopped.
func (p *page) begin() error {
	p.work.Lock()
	if !p.closing.Load() {
		return nil
	}
	p.work.Unlock()
	return fmt.Errorf("mig on gpu %q: the GPUs are being read again: %w", string(p.gpu.ID), sharing.ErrUnavailable)
}

// Stop ends the Manager's work, so that another one may have the GPUs. A running change has some seconds to end. Then
// it stops as if the process had been killed: it writes no journal any more, and without that makes no call.
func (m *Manager) Stop(ctx context.Context) {
	m.closing.Store(true)
	defer m.stopped.Store(true)
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	for _, p := range m.pages {
		for !p.work.TryLock() {
			if wait(ctx, stopPoll) != nil {
				return
			}
		}
		p.work.Unlock()
	}
}

// brake is a store that takes nothing once its Manager was stopped.
type brake struct {
	exec.Store
	stopped *atomic.Bool
}

// Save implements exec.Store.
func (b *brake) Save(gpu sharing.GPUID, data []byte) error {
	if b.stopped.Load() {
		return fmt.Errorf("mig on gpu %q: the GPUs are being read again: %w", string(gpu), sharing.ErrUnavailable)
	}
	return b.Store.Save(gpu, data) //nolint:wrapcheck // it says what and where
}

// goOn takes the clocks of who had the GPU before.
func (p *page) goOn(before *Manager) {
	if before == nil {
		return
	}
	if old := before.page(p.gpu.ID); old != nil {
		old.mu.Lock()
		defer old.mu.Unlock()
		p.turned, p.idle = old.turned, maps.Clone(old.idle)
	}
}
