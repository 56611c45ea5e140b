// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// Shown is an instance that a container has, or is about to have.
type Shown struct {
	Device sharing.MIGDevice
	GPU    sharing.GPU
	// Capabilities are the GPU instance's, then the compute instance's.
	Capabilities []Capability
}

// same reports whether containers get the same of both.
func (a Shown) same(b Shown) bool {
	return a.Device == b.Device && a.GPU.Minor == b.GPU.Minor && slices.Equal(a.Capabilities, b.Capabilities)
}

// shown is what the container runtime knows.
type shown struct {
	// mu is held during the update of the container runtime.
	mu sync.Mutex
	// tell is nil if there is no container runtime. It is set before Run.
	tell func(ctx context.Context, list []Shown) error
	// accepted is the last list that tell accepted, if known is true.
	accepted []Shown
	known    bool
}

// ShowTo sets who hears of all instances of containers, before a container is made with one and after a change. Without
// it no container gets an instance. Call it before Run.
func (s *Reconciler) ShowTo(f func(ctx context.Context, list []Shown) error) { s.shown.tell = f }

// show adds a grant's device to those of other containers, and notes it. A process needs no container runtime.
func (s *Reconciler) show(ctx context.Context, g Grant, d sharing.MIGDevice) error {
	s.shown.mu.Lock()
	defer s.shown.mu.Unlock()
	if g.Container {
		list, _ := s.devicesBut(g.ID)
		if err := s.update(ctx, append(list, Shown{Device: d, GPU: g.GPU}), d); err != nil {
			return err
		}
	}
	s.note(g.ID, func(a attempt) attempt { a.device = d; return a })
	return nil
}

// hide tells of what containers have, without the instances of grants that ended.
func (s *Reconciler) hide(ctx context.Context) {
	s.shown.mu.Lock()
	defer s.shown.mu.Unlock()
	list, ready := s.devicesBut("")
	if !ready || s.shown.tell == nil {
		return
	}
	if err := s.update(ctx, list, sharing.MIGDevice{}); err != nil && ctx.Err() == nil {
		s.log.Warn("failed to remove MIG instances from the CDI spec", "error", err.Error())
	}
}

// devicesBut are the devices of containers of all grants but one.
func (s *Reconciler) devicesBut(id ledger.GrantID) (list []Shown, ready bool) {
	s.node.View(func(grants []Grant, now bool) {
		ready = now
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, g := range grants {
			if d := s.attempts[g.ID].device; g.ID != id && g.Container && d.UUID != "" {
				list = append(list, Shown{Device: d, GPU: g.GPU})
			}
		}
	})
	return list, ready
}

// update needs shown.mu. Only a failure of the device `must` is an error: another process may have destroyed the
// others. Capabilities are read each time, because the driver may have renumbered them.
func (s *Reconciler) update(ctx context.Context, list []Shown, must sharing.MIGDevice) error {
	if s.shown.tell == nil {
		return fmt.Errorf("this agent serves no containers: %w", sharing.ErrUnsupported)
	}
	slices.SortFunc(list, func(a, b Shown) int { return cmp.Compare(a.Device.UUID, b.Device.UUID) })
	// A shared instance has several grants.
	list = slices.CompactFunc(list, func(a, b Shown) bool { return a.Device == b.Device })
	out := make([]Shown, 0, len(list))
	for _, one := range list {
		var err error
		one.Capabilities, err = s.Files.Capabilities(one.GPU, one.Device)
		switch {
		case err == nil:
			out = append(out, one)
		case one.Device == must:
			return err
		default:
			s.log.Debug("failed to read capabilities of MIG instance", "uuid", one.Device.UUID, "error", err.Error())
		}
	}
	if s.shown.known && slices.EqualFunc(out, s.shown.accepted, Shown.same) {
		return nil
	}
	s.shown.known = false
	if err := s.shown.tell(ctx, out); err != nil {
		return err
	}
	s.shown.accepted, s.shown.known = out, true
	return nil
}
