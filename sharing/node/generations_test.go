// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/checkpoint"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

// flipBit damages a file in its middle.
func flipBit(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// loseRecord removes both generations of the record.
func (b *bench) loseRecord() {
	b.t.Helper()
	for _, path := range []string{b.opt.RecordPath, checkpoint.PreviousPath(b.opt.RecordPath)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.t.Fatal(err)
		}
	}
}

// diskAway makes every write of the record fail until the returned function is called.
func (b *bench) diskAway() (back func()) {
	b.t.Helper()
	dir := filepath.Dir(b.opt.RecordPath)
	if err := os.Rename(dir, dir+".away"); err != nil {
		b.t.Fatal(err)
	}
	return func() {
		if err := os.Rename(dir+".away", dir); err != nil {
			b.t.Fatal(err)
		}
	}
}

// One bit of the newest record flips. Grants keep backend, level and size, and the reactive backend goes on with them.
func TestAFlippedBitCostsNoGrant(t *testing.T) {
	g := newGuarded(t, killing)
	p, active := g.share(4)
	_, other := g.share(4)
	if err := g.bench.Store.Settle(); err != nil {
		t.Fatal(err)
	}
	flipBit(t, g.bench.opt.RecordPath)
	g.restartAgent()
	s := g.bench.State(t.Context())
	if len(s.Grants) != 2 {
		t.Fatalf("%d grants", len(s.Grants))
	}
	for _, gr := range s.Grants {
		if gr.Recovered || gr.Backend != sharing.BackendReactive || gr.Level != sharing.LevelReactive ||
			gr.Placement[0].Memory != 4*sharing.GiB {
			t.Errorf("%+v", gr)
		}
	}
	if _, err := os.Stat(g.bench.opt.RecordPath + ".damaged"); err != nil {
		t.Errorf("the damaged record is not kept: %v", err)
	}
	g.holds(gibs(p, 5))
	g.looks(2)
	g.dead(p)
	_, _ = active, other
}

// The agent finds what changed since the remaining generation. A new attachment has its cgroup, an ended one has none,
// and no byte is granted twice.
func TestWhatChangedSinceThePreviousRecord(t *testing.T) {
	g := newGuarded(t, killing)
	ends, ended := g.share(2)
	_, stays := g.share(4)
	if err := g.bench.Store.Settle(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(g.bench.opt.RecordPath)
	if err != nil {
		t.Fatal(err)
	}
	ends.end()
	g.bench.Reconcile(t.Context())
	_, began := g.share(3)
	// As if all of it had been one write: the newest is lost, and the one before knows of none.
	if err := os.WriteFile(checkpoint.PreviousPath(g.bench.opt.RecordPath), before, 0o600); err != nil {
		t.Fatal(err)
	}
	flipBit(t, g.bench.opt.RecordPath)
	g.restartAgent()
	g.bench.Reconcile(t.Context())
	found := map[ledger.GrantID]status.Grant{}
	for _, gr := range g.bench.State(t.Context()).Grants {
		found[gr.ID] = gr
	}
	if _, there := found[ended.ID]; there || len(found) != 2 {
		t.Errorf("grants %v, want those that run", found)
	}
	if gr := found[stays.ID]; gr.Recovered || gr.Backend != sharing.BackendReactive {
		t.Errorf("what both knew: %+v", gr)
	}
	if gr := found[began.ID]; !gr.Recovered || gr.Active == nil {
		t.Errorf("what the newest alone knew: %+v", gr)
	}
	req := gib(1)
	req.UUIDs = []sharing.GPUID{g.gpus[0].UUID}
	if _, err := g.bench.Reserve(t.Context(), g.tenant().Peer, "", req); !errors.Is(err, sharing.ErrExhausted) {
		t.Errorf("with a grant of unknown size: %v", err)
	}
}
