// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/checkpoint"
	"github.com/kerf-gpu/kerf/sharing/node/record"
)

// restart is an agent that was stopped and started again; between is what happens meanwhile.
func (b *bench) restart(stop func(), between func()) {
	b.t.Helper()
	stop()
	between()
	b.Runtime = New(b.opt)
	if err := b.Restore(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.attach()
	b.loops()
}

func (b *bench) started() (stop func()) {
	b.t.Helper()
	b.Runtime = New(b.opt)
	if err := b.Restore(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.attach()
	return b.loops()
}

func TestRestartKeepsAttachments(t *testing.T) {
	b := newBench(t)
	stop := b.started()
	stays, goes := b.tenant(), b.tenant()
	kept := b.activate(stays, "stays", sharing.Request{Memory: 10 * sharing.GiB, Percent: 25, GPUs: 1})
	b.activate(goes, "goes", gib(20))
	b.restart(stop, goes.end)

	b.eventually("the one whose process ended is gone", func() bool { return len(b.State(t.Context()).Grants) == 1 })
	g := b.State(t.Context()).Grants[0]
	if g.ID != kept.ID || g.Name != "stays" || g.Recovered || g.Level != sharing.LevelDriver ||
		g.Owner.UID != 1000 || g.Placement[0].Memory != 10*sharing.GiB ||
		g.Placement[0].Percent != 25 {
		t.Errorf("restored %+v", g)
	}
	if _, err := b.Reserve(t.Context(), b.tenant().Peer, "stays", gib(1)); !errors.Is(err, sharing.ErrConflict) {
		t.Errorf("the name of a restored grant was given again: %v", err)
	}
	stays.end()
	b.eventually("the restored attachment ends", func() bool { return len(b.State(t.Context()).Grants) == 0 })
	b.empty()
}

// Both generations of the record are lost; cgroups and the driver tell what runs: a share, a whole GPU, and nothing
// twice.
func TestLostRecord(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"removed": os.Remove,
		"damaged": func(p string) error {
			return os.WriteFile(p, []byte(`{"schema":1,"sha256":"00","body":{}}`),
				0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			stop := b.started()
			p, q := b.tenant(), b.tenant()
			share := b.activate(p, "share", gib(10))
			whole := b.activate(q, "whole", sharing.Request{Kind: sharing.KindWhole, GPUs: 1})
			b.restart(stop, func() {
				if err := errors.Join(lose(b.opt.RecordPath),
					lose(checkpoint.PreviousPath(b.opt.RecordPath))); err != nil {
					t.Fatal(err)
				}
			})
			s := b.State(t.Context())
			if len(s.Grants) != 2 {
				t.Fatalf("%d grants found again", len(s.Grants))
			}
			for _, g := range s.Grants {
				f := g.Placement
				switch g.ID {
				case share.ID:
					if len(f) != 1 || f[0].GPU != share.Own[0].Ref() || f[0].Memory != 10*sharing.GiB ||
						g.Level != sharing.LevelDriver || !g.Recovered {
						t.Errorf("share %+v", g)
					}
				case whole.ID:
					if len(f) != 1 || f[0].GPU != whole.Own[0].Ref() || !f[0].Whole ||
						g.Level != sharing.LevelExclusive {
						t.Errorf("whole %+v", g)
					}
				}
			}
			p.end()
			q.end()
			b.eventually("both end", func() bool { return len(b.State(t.Context()).Grants) == 0 })
			b.empty()
		})
	}
}

func TestARecordOfAnotherBootIsNoAttachment(t *testing.T) {
	b := newBench(t)
	data, err := record.Encode(record.Record{BootID: "an earlier boot", Grants: []record.Grant{{
		ID: "k-old", Level: "driver", Cgroup: filepath.Join(b.opt.Cgroups.Mount, b.opt.Parent, "k-old"), Inode: 1,
		Shares: []record.Share{{GPU: b.gpus[0].Ref().String(), Memory: sharing.GiB}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.opt.RecordPath, data, 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.empty()
}

func TestANewerRecordIsLeftAlone(t *testing.T) {
	b := newBench(t)
	newer := []byte(fmt.Sprintf(`{"schema":%d,"body":{}}`, record.Schema+1))
	if err := os.WriteFile(b.opt.RecordPath, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := New(b.opt).Restore(t.Context()); !errors.Is(err, sharing.ErrUnsupported) {
		t.Errorf("%v, want ErrUnsupported", err)
	}
	if got, err := os.ReadFile(b.opt.RecordPath); err != nil || !bytes.Equal(got, newer) {
		t.Errorf("record is now %q %v", got, err)
	}
}

// A driver that was reloaded has forgotten the caps: they are put back before the node is ready again.
func TestCapsArePutBack(t *testing.T) {
	b := newBench(t)
	b.start()
	p := b.tenant()
	a := b.activate(p, "", gib(10))
	dir := b.State(t.Context()).Grants[0].Active.Cgroup
	b.Detach("driver unloaded")
	if g := b.State(t.Context()).Grants; len(g) != 1 || g[0].Level != sharing.LevelUnknown {
		t.Errorf("without a driver: %+v", g)
	}
	b.caps.forget()
	b.attach()
	if limit, _, err := b.caps.Read(t.Context(), dir, a.Own[0].Ref()); err != nil || limit != 10*sharing.GiB {
		t.Errorf("cap after the driver came back: %d %v", limit, err)
	}
	if limit, _, err := b.caps.Read(t.Context(), dir, a.Others[0].Ref()); err != nil || limit != least {
		t.Errorf("least limit after the driver came back: %d %v", limit, err)
	}
	// One that cannot be put back is not called capped.
	b.caps.forget()
	b.caps.set(func() { b.caps.fail = fmt.Errorf("set limit: %w", sharing.ErrUnavailable) })
	b.VerifyAll(t.Context())
	if g := b.State(t.Context()).Grants[0]; g.Level != sharing.LevelUnknown || g.LevelReason == "" {
		t.Errorf("a cap that is not enforced is shown as %v (%s)", g.Level, g.LevelReason)
	}
	b.caps.set(func() { b.caps.fail = nil })
	b.VerifyAll(t.Context())
	if g := b.State(t.Context()).Grants[0]; g.Level != sharing.LevelDriver {
		t.Errorf("the cap is back, and is shown as %v", g.Level)
	}
}

// A GPU whose loss is not reported yet takes no cap off another: the program goes on running.
func TestAGPULostUnnoticedUncapsNobody(t *testing.T) {
	b := newBench(t)
	b.start()
	a := b.activate(b.tenant(), "", gib(10))
	g := b.State(t.Context()).Grants[0]
	var other sharing.GPURef
	for _, gpu := range b.State(t.Context()).GPUs {
		if gpu.GPU.Ref() != a.Own[0].Ref() {
			other = gpu.GPU.Ref()
		}
	}
	b.caps.set(func() { b.caps.broken = other })
	b.VerifyAll(t.Context())
	limit, _, err := b.caps.Read(t.Context(), g.Active.Cgroup, a.Own[0].Ref())
	if err != nil || limit != 10*sharing.GiB {
		t.Errorf("the program may hold %v of its GPU, %v: want its cap", limit, err)
	}
	// Nothing can use a GPU that is gone, so that it needs no limit.
	if g := b.State(t.Context()).Grants[0]; g.Level != sharing.LevelDriver {
		t.Errorf("with a GPU that is gone it is shown as %v (%s)", g.Level, g.LevelReason)
	}
	// Its own is another matter.
	b.caps.set(func() { b.caps.broken = a.Own[0].Ref() })
	b.VerifyAll(t.Context())
	if g := b.State(t.Context()).Grants[0]; g.Level != sharing.LevelUnknown ||
		!strings.Contains(g.LevelReason, a.Own[0].Ref().String()) {
		t.Errorf("a limit that cannot be read is shown as %v (%s)", g.Level, g.LevelReason)
	}
	b.caps.set(func() { b.caps.broken = sharing.GPURef{UUID: ""} })
	b.VerifyAll(t.Context())
	if g := b.State(t.Context()).Grants[0]; g.Level != sharing.LevelDriver {
		t.Errorf("all limits are there, and it is shown as %v (%s)", g.Level, g.LevelReason)
	}
}

// A picture that a caller gave up on, or one from before the driver was there, must not be shown to others.
func TestNoStalePicture(t *testing.T) {
	b := newBench(t)
	b.start()
	b.activate(b.tenant(), "", gib(10))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if s := b.State(gone); !s.GPUs[0].UsedKnown {
		t.Error("a caller that left got an empty picture, and so would the next")
	}
	b.Detach("driver unloaded")
	if s := b.State(t.Context()); s.GPUs[0].UsedKnown {
		t.Error("use is shown although no driver answers")
	}
	b.attach()
	if s := b.State(t.Context()); !s.GPUs[0].UsedKnown || !s.Grants[0].UsedKnown[0] {
		t.Error("the picture from before the driver came is shown still")
	}
}

func TestALostGPUKeepsItsGrantsAndTakesNoMore(t *testing.T) {
	b := newBench(t)
	b.start()
	p := b.tenant()
	a := b.activate(p, "", gib(10))
	b.SetHealth(a.Own[0].UUID, sharing.HealthLost, "XID 79")
	g := b.State(t.Context()).Grants[0]
	if g.Health != sharing.HealthLost {
		t.Errorf("grant on a lost GPU is %v", g.Health)
	}
	req := gib(1)
	req.UUIDs = []sharing.GPUID{a.Own[0].UUID}
	if _, err := b.Reserve(t.Context(), b.tenant().Peer, "", req); err == nil {
		t.Error("a lost GPU took a grant")
	}
	b.SetHealth(a.Own[0].UUID, sharing.HealthOK, "")
	b.activate(b.tenant(), "", req)
}
