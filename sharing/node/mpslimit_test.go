// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

// A grant under MPS grows at once, for programs that start with the new limit. Status names those that did not. It
// shrinks while none of its processes is a client, and its daemon has no grant with more.
func TestLimitOfMPS(t *testing.T) {
	g, m := newMPS(t)
	p, a := g.share(10)
	sized := func(want sharing.Bytes) {
		t.Helper()
		s := g.shown()
		if in := m.all()[string(a.ID)].Memory; s.Placement[0].Memory != want || in != want ||
			g.bench.recorded()[0].Shares[0].Memory != want {
			t.Errorf("booked %s, at its daemon %s, want %s", s.Placement[0].Memory, in, want)
		}
	}
	limit := func(n int) error { return g.bench.Limit(t.Context(), as(root), a.ID, sharing.Bytes(n)*sharing.GiB) }
	if err := limit(20); err != nil {
		t.Fatal(err)
	}
	sized(20 * sharing.GiB)
	if s := g.shown(); s.Level != sharing.LevelUserspace ||
		!strings.Contains(s.LevelReason, fmt.Sprintf("(pid %d), and what they start, have at most the 10GiB", p.PID)) {
		t.Errorf("level %v, %q", s.Level, s.LevelReason)
	}
	g.holds(gpudriver.ProcessUse{PID: p.PID, Used: sharing.GiB, Known: true, MPS: true})
	if err := limit(5); !errors.Is(err, sharing.ErrConflict) ||
		!strings.Contains(err.Error(), fmt.Sprintf("pid %d", p.PID)) {
		t.Errorf("with a client: %v", err)
	}
	sized(20 * sharing.GiB)
	g.holds()
	m.fails = sharing.ErrUnavailable
	if err := limit(30); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("without its daemon: %v", err)
	}
	m.fails = nil
	sized(20 * sharing.GiB)
	if err := limit(5); err != nil {
		t.Fatal(err)
	}
	sized(5 * sharing.GiB)
	if s := g.shown(); strings.Contains(s.LevelReason, "at most") {
		t.Errorf("less than it was started with: %q", s.LevelReason)
	}
	_, other := g.share(8)
	if err := limit(4); !errors.Is(err, sharing.ErrConflict) || !strings.Contains(err.Error(), string(other.ID)) {
		t.Errorf("with a larger one: %v", err)
	}
	sized(5 * sharing.GiB)
}

// The next container of a pod is made with the new limit.
func TestLimitOfMPSPod(t *testing.T) {
	g, _ := newMPSPods(t)
	c := g.run(g.onFirst(g.app("p", "gpu-memory-gib:10")))
	if err := g.bench.Limit(t.Context(), as(root), g.shown().ID, 20*sharing.GiB); err != nil {
		t.Fatal(err)
	}
	if s := g.shown(); !strings.Contains(s.LevelReason, "at most the 10GiB") {
		t.Errorf("%q", s.LevelReason)
	}
	c.exit()
	g.bench.Reconcile(t.Context())
	again := g.run(c.ask)
	if s := g.shown(); again.in.Env["LIMIT"] != "20GiB" || strings.Contains(s.LevelReason, "at most") {
		t.Errorf("the next container: %v, %q", again.in.Env, s.LevelReason)
	}
}
