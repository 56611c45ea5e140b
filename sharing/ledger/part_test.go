// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// partGPU is a shared instance of GPU "a" over four of its units.
func partGPU(start int) sharing.GPU {
	in := sharing.Instance{Profile: "3g.40gb", ID: 9, Start: start, Size: 4}
	g := migGPU("a", false)
	g.Memory, g.Part = 40*sharing.GiB, in
	return g
}

func shareOf(id string, gpu sharing.GPURef, memory sharing.Bytes) Reservation {
	return Reservation{
		ID: GrantID(id), Request: sharing.Request{Memory: memory, GPUs: 1}, Terms: Terms{Level: sharing.LevelUserspace},
		Placement: sharing.Placement{{GPU: gpu, Memory: memory}},
	}
}

// Random shares of two instances, and instances granted whole, against a naive list. No memory slice of the GPU has
// both, and no instance gives more memory than it has.
func TestPartsProperty(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	l := New()
	parts := []sharing.GPU{partGPU(0), partGPU(4)}
	if err := l.SetInventory(append([]sharing.GPU{migGPU("a", true)}, parts...)); err != nil {
		t.Fatal(err)
	}
	have := map[string]sharing.Share{}
	refused := 0
	for i := range 3000 {
		id := fmt.Sprintf("k-%d", i)
		part := parts[r.IntN(2)]
		c := shareOf(id, part.Ref(), sharing.Bytes(1+r.IntN(20))*sharing.GiB)
		free, held := true, sharing.Bytes(0)
		if r.IntN(4) == 0 {
			c = migGrant(id, "a", r.IntN(8), 1+r.IntN(4))
		}
		f := c.Placement[0]
		for _, o := range have {
			switch {
			case f.GPU == o.GPU && f.GPU.IsInstance():
				held += o.Memory
			case f.GPU == o.GPU:
				free = free && !f.MIG.Overlaps(o.MIG)
			case !f.GPU.IsInstance():
				free = free && !f.MIG.Overlaps(partOf(parts, o.GPU))
			case !o.GPU.IsInstance():
				free = free && !o.MIG.Overlaps(part.Part)
			}
		}
		free = free && held+f.Memory <= 40*sharing.GiB
		err := l.Reserve(c)
		if free != (err == nil) || err != nil && !errors.Is(err, sharing.ErrExhausted) {
			t.Fatalf("%+v next to %v: %v", f, have, err)
		}
		if err == nil {
			have[id] = f
		} else {
			refused++
		}
		for id := range have {
			if r.IntN(6) == 0 {
				if err := l.Release(GrantID(id)); err != nil {
					t.Fatal(err)
				}
				delete(have, id)
			}
		}
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if refused < 300 {
		t.Errorf("only %d grants were refused", refused)
	}
}

func partOf(parts []sharing.GPU, id sharing.GPURef) sharing.Instance {
	for _, p := range parts {
		if p.Ref() == id {
			return p.Part
		}
	}
	return sharing.Instance{}
}

func TestPartsGiveMemoryAlone(t *testing.T) {
	l := New()
	part := partGPU(0)
	if err := l.SetInventory([]sharing.GPU{migGPU("a", true), part}); err != nil {
		t.Fatal(err)
	}
	for name, req := range map[string]sharing.Request{
		"whole":   {Kind: sharing.KindWhole, GPUs: 1},
		"percent": {Percent: 50, GPUs: 1},
	} {
		c := Reservation{ID: "k", Request: req, Placement: sharing.Placement{req.On(part)}}
		if err := l.Reserve(c); !errors.Is(err, sharing.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A GPU that is cordoned takes nothing new on its instances either.
func TestACordonIsOfAllParts(t *testing.T) {
	l := New()
	part := partGPU(0)
	if err := l.SetInventory([]sharing.GPU{migGPU("a", true), part}); err != nil {
		t.Fatal(err)
	}
	l.SetCordons(map[sharing.GPUID]string{"a": "fan"})
	if err := l.Reserve(shareOf("k", part.Ref(), sharing.GiB)); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("a share of a cordoned GPU's instance: %v", err)
	}
	l.SetCordons(nil)
	if err := l.Reserve(shareOf("k", part.Ref(), sharing.GiB)); err != nil {
		t.Errorf("after it: %v", err)
	}
}
