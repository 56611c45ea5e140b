// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// TestCapEventsOfTheWatch has an attachment past its cap twice, and one that is not.
func TestCapEventsOfTheWatch(t *testing.T) {
	g := newGuarded(t, warning)
	p, a := g.share(4)
	events := func() status.CapEvents {
		t.Helper()
		for _, s := range g.bench.State(t.Context()).Grants {
			if s.ID == a.ID && len(s.Events) == 1 {
				return s.Events[0]
			}
		}
		t.Fatal("no events are shown")
		return status.CapEvents{}
	}
	if e := events(); e != (status.CapEvents{}) {
		t.Errorf("before the first look: %+v", e)
	}
	g.looks(1)
	if e := events(); e != (status.CapEvents{Watched: true}) {
		t.Errorf("within its cap: %+v", e)
	}
	for range 2 {
		g.holds(gibs(p, 5))
		g.looks(4)
		g.holds(gibs(p, 4))
		g.looks(1)
	}
	if e := events(); e.Violations != 2 || e.Delay <= 0 || e.Counted {
		t.Errorf("twice past it: %+v", e)
	}
}

// TestCapEventsOfTheLibrary has programs count refusals, and a container that spoils what they count in.
func TestCapEventsOfTheLibrary(t *testing.T) {
	g := newPreloaded(t, preloading)
	_, a := g.share(4)
	if d := cmp.Diff([]status.CapEvents{{Counted: true}}, g.shown().Events); d != "" {
		t.Errorf("at first: %s", d)
	}
	usage := filepath.Join(g.bench.regionOf(string(a.ID)), libkerf.UsageFileName)
	f, err := os.OpenFile(usage, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const refusedAt = 64 + 8*8 // of the first GPU
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], 3)
	if _, err := f.WriteAt(word[:], refusedAt); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]status.CapEvents{{Refused: 3, Counted: true}}, g.shown().Events); d != "" {
		t.Errorf("after three refusals: %s", d)
	}
	if err := os.Truncate(usage, 0); err != nil {
		t.Fatal(err)
	}
	g.bench.upkeep(t.Context())
	if d := cmp.Diff([]status.CapEvents{{}}, g.shown().Events); d != "" {
		t.Errorf("of a region that is cut: %s", d)
	}
}
