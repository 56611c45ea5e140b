// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math/rand/v2"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// Against a naive account of what is not managed: managed memory never stands in the way of other memory, fills
// only what is left, and processes are listed with all that is not managed and with nothing else.
func TestManagedMemoryFillsWhatIsLeft(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) // #nosec G404 -- a test's own
	m := testMachine(t, "t4x4", machine.Dmem)
	const usable = 15360*mib - 266*mib
	var fixed sharing.Bytes // contexts and linear memory
	type block struct {
		p       process
		at      uint64
		size    sharing.Bytes
		managed bool
	}
	var procs []process
	for pid := 1; pid <= 3; pid++ {
		procs = append(procs, open(t, m, 0, pid, nil))
		fixed += 120 * mib
	}
	var blocks []block
	refused, full := 0, 0
	for range 4000 {
		p := procs[random.IntN(len(procs))]
		size := sharing.Bytes(random.IntN(4096)+1) * mib
		switch random.IntN(4) {
		case 0:
			at, err := m.Alloc(p.id, size, p.ctx, wire.KindLinear, nil)
			if fits := size <= usable-fixed; fits != (err == nil) {
				t.Fatalf("%d MiB next to %d: %v", size/mib, fixed/mib, err)
			}
			if err != nil {
				refused++
				continue
			}
			fixed += size
			blocks = append(blocks, block{p: p, at: at, size: size})
		case 1:
			blocks = append(blocks, block{p: p, at: p.managed(size, nil), size: size, managed: true})
		case 2:
			for _, q := range blocks {
				if !q.managed || random.IntN(3) > 0 {
					continue
				}
				want := sharing.Bytes(random.IntN(int(q.size/mib)+1)) * mib // #nosec G115 -- at most 4096
				got, err := m.Reside(q.p.id, q.at, want)
				if err != nil || got != min(want, usable-fixed) {
					t.Fatalf("%d MiB of managed memory next to %d: %d, %v", want/mib, fixed/mib, got/mib, err)
				}
				if got < want {
					full++
				}
			}
		default:
			if len(blocks) == 0 {
				continue
			}
			i := random.IntN(len(blocks))
			wantErr(t, m.Free(blocks[i].p.id, blocks[i].at), nil)
			if !blocks[i].managed {
				fixed -= blocks[i].size
			}
			blocks = append(blocks[:i], blocks[i+1:]...)
		}
		memory, err := m.Memory(0, nil)
		wantErr(t, err, nil)
		list, err := m.Processes(0)
		wantErr(t, err, nil)
		var sum sharing.Bytes
		for _, q := range list {
			sum += q.Bytes
		}
		if sum != fixed || memory.Used > usable || memory.Used < fixed {
			t.Fatalf("processes hold %d MiB, %d are in use, %d of them fixed", sum/mib, memory.Used/mib, fixed/mib)
		}
	}
	if refused == 0 || full == 0 {
		t.Errorf("%d refused, %d that found too little room: the test meets too little", refused, full)
	}
}
