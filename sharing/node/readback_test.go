// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
	"github.com/kerf-gpu/kerf/sharing/node/startcheck"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

const noLimit sharing.Bytes = 1<<64 - 1

// raise does to the limits of a container what NVIDIA's limit hook does: the hard limit becomes the maximum.
func (c *container) raise(gpus ...sharing.GPURef) {
	c.b.caps.set(func() {
		for _, gpu := range gpus {
			c.b.caps.limits[c.group.Dir][gpu] = noLimit
		}
	})
}

// starting is what NRI's StartContainer asks.
func (b *bench) starting(c *container) error {
	return startcheck.New(b.Runtime, slog.New(slog.DiscardHandler)).Starting(b.t.Context(), c.id)
}

// TestReadBackAtTheStart: a container starts only if its hook activated the grant and each limit is as granted.
func TestReadBackAtTheStart(t *testing.T) {
	b := newPodBench(t)
	b.still()
	ask := b.app("p", "gpu-memory-gib:10")
	c := b.inject(ask).make()
	refused(t, b.starting(c), sharing.ErrNotFound, "no hook activated")
	if err := c.hooks(); err != nil {
		t.Fatal(err)
	}
	if err := b.starting(c); err != nil {
		t.Fatal(err)
	}
	own := c.in.Placement[0].GPU
	var other sharing.GPURef
	for _, g := range b.gpus {
		if g.Ref() != own {
			other = g.Ref()
		}
	}
	for name, tc := range map[string]struct {
		change func()
		want   error
		words  []string
	}{
		"the cap is raised": {func() { c.raise(own) }, sharing.ErrConflict,
			[]string{"limit none", "cap 10GiB", own.String()}},
		"the cap is lowered": {func() { c.b.caps.set(func() { b.caps.limits[c.group.Dir][own] = sharing.GiB }) },
			sharing.ErrConflict, []string{"limit 1GiB"}},
		"another GPU is raised": {func() { c.raise(other) }, sharing.ErrConflict, []string{"not part of the grant"}},
		"all limits are gone":   {b.caps.forget, sharing.ErrConflict, []string{"has no limit"}},
		"the driver is mute": {func() {
			b.caps.set(func() { b.caps.silent = fmt.Errorf("mute: %w", sharing.ErrUnavailable) })
		}, sharing.ErrUnavailable, []string{"mute"}},
		"no driver answers": {func() { b.Detach("gone") }, sharing.ErrUnavailable, []string{"no driver answers"}},
		"the container is other": {func() { c.id = strings.Repeat("f", 64) }, sharing.ErrNotFound,
			[]string{"no grant"}},
	} {
		t.Run(name, func(t *testing.T) {
			id := c.id
			tc.change()
			refused(t, b.starting(c), tc.want, tc.words...)
			c.id = id
			b.caps.set(func() { b.caps.silent = nil })
			b.attach()
			if err := c.hooks(); err != nil {
				t.Fatal(err)
			}
			b.VerifyAll(t.Context())
			if err := b.starting(c); err != nil {
				t.Errorf("after the limits were put back: %v", err)
			}
		})
	}
	c.remove()
	b.gone("p")
}

// TestRaisedLimitIsRestored: if another program raises a limit, the agent sets it again. The level is unknown for as
// long as that container lives, and its pod gets an event.
func TestRaisedLimitIsRestored(t *testing.T) {
	b := newPodBench(t)
	b.still()
	var told []string
	b.Notify.ToPod = func(_ context.Context, ref sharing.ContainerRef, reason, message string) {
		told = append(told, ref.Pod+" "+reason+" "+message)
	}
	ask := b.app("p", "gpu-memory-gib:10")
	c := b.run(ask)
	own := c.in.Placement[0].GPU
	c.raise(own)
	if err := b.RestoreLimits(t.Context(), c.id, "a hook raised it"); err != nil {
		t.Fatal(err)
	}
	c.limits(map[sharing.GPURef]sharing.Bytes{own: 10 * sharing.GiB})
	for range 2 { // the periodic verification finds nothing wrong, and the doubt stays
		s := b.state(ask)
		if s.Level != sharing.LevelUnknown || s.LevelReason != "a hook raised it" {
			t.Errorf("level %s, %q", s.Level, s.LevelReason)
		}
		b.VerifyAll(t.Context())
	}
	if len(told) != 1 || told[0] != "p "+lifecycle.CapRaisedReason+" a hook raised it" {
		t.Errorf("reported %q", told)
	}
	c.remove()
	next := b.run(ask)
	if s := b.state(ask); s.Level != sharing.LevelDriver {
		t.Errorf("the next instance has level %s, %q", s.Level, s.LevelReason)
	}
	refused(t, b.RestoreLimits(t.Context(), c.id, "late"), sharing.ErrNotFound)
	next.remove()
	b.gone("p")
}

// TestRaisedLimitIsFoundLater: the periodic verification finds a limit that another program raised after the check of
// the start. A limit that is gone because the driver was away is only set again.
func TestRaisedLimitIsFoundLater(t *testing.T) {
	b := newPodBench(t)
	b.still()
	var told []string
	b.Notify.ToPod = func(_ context.Context, ref sharing.ContainerRef, reason, message string) {
		told = append(told, ref.Pod+" "+reason)
	}
	ask := b.app("p", "gpu-memory-gib:10")
	c := b.run(ask)
	own := c.in.Placement[0].GPU
	id := b.grant(ask).ID
	b.VerifyRunning(t.Context(), id)
	c.raise(own)
	b.VerifyAll(t.Context()) // as after a driver's restart
	if s := b.state(ask); s.Level != sharing.LevelDriver || len(told) != 0 {
		t.Errorf("after a restart of the driver: level %s, %q; reported %q", s.Level, s.LevelReason, told)
	}
	c.raise(own)
	b.VerifyRunning(t.Context(), id)
	c.limits(map[sharing.GPURef]sharing.Bytes{own: 10 * sharing.GiB})
	if s := b.state(ask); s.Level != sharing.LevelUnknown ||
		!strings.Contains(s.LevelReason, "raised the driver's limit") {
		t.Errorf("level %s, %q", s.Level, s.LevelReason)
	}
	b.VerifyRunning(t.Context(), id)
	c.raise(own)
	b.VerifySoon() // the GPU came back
	b.VerifyRunning(t.Context(), id)
	if !slices.Equal(told, []string{"p " + lifecycle.CapRaisedReason}) {
		t.Errorf("events %q, want one", told)
	}
	c.remove()
	b.gone("p")
}

// A resize holds the reading up; it does not look like another program's change.
func TestReadBackWaitsForAResize(t *testing.T) {
	b := newPodBench(t)
	b.still()
	ask := b.app("p", "gpu-memory-gib:10")
	c := b.run(ask)
	g := b.grant(ask)
	if err := b.Store.UpdateLater(func(l *ledger.Ledger) error { return l.Begin(g.ID, ledger.Resizing) }); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := b.ReadLimits(ctx, c.id)
	refused(t, err, sharing.ErrUnavailable)
	_ = b.Store.UpdateLater(func(l *ledger.Ledger) error { l.Done(g.ID); return nil })
	if err := b.starting(c); err != nil {
		t.Error(err)
	}
	c.remove()
	b.gone("p")
}

// TestGPUThatAnswersAgainAtTheStart: a GPU that is not part of the grant and does not answer during the activation gets
// no limit. Once it answers, the missing limit is not another program's doing.
func TestGPUThatAnswersAgainAtTheStart(t *testing.T) {
	b := newPodBench(t)
	b.still()
	ask := b.app("p", "gpu-memory-gib:10")
	c := b.inject(ask).make()
	other := b.gpus[slices.IndexFunc(b.gpus,
		func(g sharing.GPU) bool { return g.Ref() != c.in.Placement[0].GPU })].Ref()
	b.SetHealth(other.UUID, sharing.HealthSuspect, "does not answer")
	if err := c.hooks(); err != nil {
		t.Fatal(err)
	}
	b.SetHealth(other.UUID, sharing.HealthOK, "")
	if err := b.starting(c); err != nil {
		t.Error(err)
	}
	b.VerifyAll(t.Context())
	c.limits(map[sharing.GPURef]sharing.Bytes{c.in.Placement[0].GPU: 10 * sharing.GiB})
	c.remove()
	b.gone("p")
}

// state is what the node shows of the container's grant.
func (b *bench) state(ask sharing.ContainerRequest) status.Grant {
	b.t.Helper()
	s, ok := b.Grant(b.grant(ask).ID)
	if !ok {
		b.t.Fatal("no grant")
	}
	return s
}
