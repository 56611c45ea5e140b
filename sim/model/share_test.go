// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// bytesOf is what NVML tells of a process.
func bytesOf(t *testing.T, m *Model, pid int) sharing.Bytes {
	t.Helper()
	all, err := m.Processes(0)
	wantErr(t, err, nil)
	for _, p := range all {
		if p.PID == pid {
			return p.Bytes
		}
	}
	return 0
}

func chargedTo(t *testing.T, m *Model, chain Chain) sharing.Bytes {
	t.Helper()
	l, err := m.GetLimit(0, chain)
	wantErr(t, err, nil)
	return l.Used
}

// Memory lives on with who imported it, and its maker's limit is charged until it is gone: what was freed so cannot be
// taken again.
func TestImportedMemoryLivesOn(t *testing.T) {
	for name, leave := range map[string]func(m *Model, maker process, at uint64) error{
		"freed": func(m *Model, maker process, at uint64) error { return m.Free(maker.id, at) },
		"context destroyed": func(m *Model, maker process, _ uint64) error {
			return m.DestroyContext(maker.id,
				maker.ctx)
		},
		"ended": func(m *Model, maker process, _ uint64) error { m.Close(maker.id, 0); return nil },
	} {
		for _, acct := range []machine.Memacct{machine.Misc, machine.Dmem} {
			t.Run(name, func(t *testing.T) {
				m := testMachine(t, "h100x8", acct)
				setLimit(t, m, inA, 5*gib)
				maker, taker := open(t, m, 0, 100, inA), open(t, m, 0, 200, inD)
				context := bytesOf(t, m, 200)
				at := maker.alloc(4*gib, inA, nil)
				got, err := m.Import(taker.id, at, taker.ctx)
				wantErr(t, err, nil)
				if got != 4*gib || bytesOf(t, m, 200) != context || bytesOf(t, m, 100) != context+4*gib {
					t.Errorf("imported %s; its maker uses %s, its importer %s", got, bytesOf(t, m, 100),
						bytesOf(t, m, 200))
				}
				wantErr(t, leave(m, maker, at), nil)
				if got := bytesOf(t, m, 200); got != context+4*gib {
					t.Errorf("the only holder uses %s", got)
				}
				if got := chargedTo(t, m, inA); got < 4*gib {
					t.Errorf("%s are charged to whom it was made for", got)
				}
				again := open(t, m, 0, 101, inA)
				again.alloc(2*gib, inA, wire.OutOfMemory)
				m.Close(again.id, 0)
				wantErr(t, m.Free(taker.id, at), nil)
				wantErr(t, m.Free(taker.id, at), wire.NotFound)
				m.Close(maker.id, 0)
				m.Close(taker.id, 0)
				if used := m.gpus[0].inUse(); used != 0 || chargedTo(t, m, inA) != 0 || len(m.gpus[0].memory) != 0 {
					t.Errorf("%s are in use and %s charged after all have ended", used, chargedTo(t, m, inA))
				}
			})
		}
	}
}

// A file that stands for memory holds it when no process does. No list shows it then.
func TestFileHoldsMemory(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Dmem)
	setLimit(t, m, inA, 5*gib)
	maker := open(t, m, 0, 100, inA)
	at := maker.alloc(4*gib, inA, nil)
	file, err := m.Open(0, 100)
	wantErr(t, err, nil)
	other, err := m.Open(0, 999)
	wantErr(t, err, nil)
	wantErr(t, m.Export(other, at), wire.NotFound)
	wantErr(t, m.Export(file, at), nil)
	wantErr(t, m.Export(file, at), wire.Invalid)
	m.Close(maker.id, 0)
	if all, err := m.Processes(0); err != nil || len(all) != 0 {
		t.Errorf("processes %v, %v after the end of all", all, err)
	}
	if used := m.gpus[0].inUse(); used != 4*gib || chargedTo(t, m, inA) != 4*gib {
		t.Errorf("%s are in use, %s charged, by a file", used, chargedTo(t, m, inA))
	}
	m.Close(file, 0)
	if used := m.gpus[0].inUse(); used != 0 || chargedTo(t, m, inA) != 0 {
		t.Errorf("%s are in use after the file was closed", used)
	}
}

func TestImportRefuses(t *testing.T) {
	m := testMachine(t, "h100x8", machine.Dmem)
	maker, taker := open(t, m, 0, 100, inA), open(t, m, 0, 200, inD)
	at := maker.alloc(gib, inA, nil)
	managed, err := m.Alloc(maker.id, gib, maker.ctx, wire.KindManaged, inA)
	wantErr(t, err, nil)
	elsewhere := open(t, m, 1, 300, inD)
	for name, tc := range map[string]struct {
		id      ClientID
		at, ctx uint64
		want    error
	}{
		"its own":         {maker.id, at, 0, wire.Invalid},
		"not its begin":   {taker.id, at + 1, 0, wire.NotFound},
		"managed":         {taker.id, managed, 0, wire.NotFound},
		"another context": {taker.id, at, maker.ctx, wire.NotFound},
		"another GPU":     {elsewhere.id, at, 0, wire.NotFound},
		"no-one":          {9999, at, 0, wire.NotFound},
	} {
		if _, err := m.Import(tc.id, tc.at, tc.ctx); err != tc.want { //nolint:errorlint // a status, as it is
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	_, err = m.Import(taker.id, at, 0)
	wantErr(t, err, nil)
	if _, err := m.Checkpoint(0, 100, wire.CheckpointLock, inA); err != wire.NotSupported { //nolint:errorlint // a status, as it is
		t.Errorf("checkpoint of who shares memory: %v", err)
	}
}

// heldBy is a block of memory, as plain as can be: who holds it, and how often. Its maker is the first.
type heldBy struct {
	at     uint64
	bytes  sharing.Bytes
	maker  int
	times  map[int]int
	made   bool // its maker has it still
	inFile map[ClientID]bool
}

// Imports, exports, frees and closes may come in any order. Memory is in use while a process holds it, and is charged
// to whom it was made for. The lists name a process that alone holds it.
func TestSharingProperty(t *testing.T) {
	const pids = 5
	rng := rand.New(rand.NewPCG(1, 7))
	for range 40 {
		m := testMachine(t, "h100x8", machine.Dmem)
		setLimit(t, m, inA, 40*gib)
		procs := make([]process, pids)
		for i := range procs {
			procs[i] = open(t, m, 0, 100+i, inA)
		}
		context := bytesOf(t, m, 100)
		var blocks []*heldBy
		for range 300 {
			who := rng.IntN(pids)
			p := procs[who]
			var block *heldBy
			if len(blocks) > 0 {
				block = blocks[rng.IntN(len(blocks))]
			}
			switch step := rng.IntN(7); {
			case step < 2 || block == nil:
				bytes := sharing.Bytes(1+rng.IntN(8)) * 64 * mib
				blocks = append(blocks, &heldBy{at: p.alloc(bytes, inA, nil), bytes: bytes, maker: who, made: true,
					times: map[int]int{}, inFile: map[ClientID]bool{}})
			case step < 4:
				if _, err := m.Import(p.id, block.at, 0); err == nil {
					block.times[who]++
				} else if who != block.maker || !block.made {
					t.Fatalf("import of what is held: %v", err)
				}
			case step == 4:
				file, err := m.Open(0, 100+who)
				wantErr(t, err, nil)
				has := block.made && block.maker == who || block.times[who] > 0
				if err := m.Export(file, block.at); (err == nil) != has {
					t.Fatalf("export by who holds it, %t: %v", has, err)
				} else if err == nil {
					block.inFile[file] = true
				}
			case step == 5:
				for file := range block.inFile {
					m.Close(file, 0)
					delete(block.inFile, file)
					break
				}
			default:
				err := m.Free(p.id, block.at)
				switch {
				case block.made && block.maker == who:
					block.made = false
				case block.times[who] > 1:
					block.times[who]--
				case block.times[who] == 1:
					delete(block.times, who)
				default:
					wantErr(t, err, wire.NotFound)
					err = nil
				}
				wantErr(t, err, nil)
			}
			blocks = slices.DeleteFunc(blocks, func(h *heldBy) bool {
				return !h.made &&
					len(h.times)+len(h.inFile) == 0
			})
			var sum sharing.Bytes
			used := slices.Repeat([]sharing.Bytes{context}, pids)
			for _, h := range blocks {
				sum += h.bytes
				if h.made {
					used[h.maker] += h.bytes
				} else if len(h.times) == 1 && len(h.inFile) == 0 {
					for only := range h.times {
						used[only] += h.bytes
					}
				}
			}
			if used := m.gpus[0].inUse(); used != sum+pids*context || chargedTo(t, m, inA) != used {
				t.Fatalf("%s are in use and %s charged, want %s", used, chargedTo(t, m, inA), sum+pids*context)
			}
			for i, want := range used {
				if got := bytesOf(t, m, 100+i); got != want {
					t.Fatalf("process %d uses %s, want %s", i, got, want)
				}
			}
		}
	}
}
