// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

func TestParseFactor(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]Factor{"1": 100, "2": 200, "1.25": 125, "1.5": 150, "1.05": 105, "1.50": 150,
		"2.00": 200} {
		got, err := ParseFactor("memory", s, MaxMemoryFactor)
		if err != nil || got != want {
			t.Errorf("%q is %d, %v, want %d", s, got, err, want)
		}
		if again, err := ParseFactor("memory", got.String(), MaxMemoryFactor); err != nil || again != got {
			t.Errorf("%q is written as %q, which is %d, %v", s, got, again, err)
		}
	}
	for _, s := range []string{"", "0", "0.5", "-1", "2.01", "3", "1.255", "1.", ".5", "1e1", "1,5", "x", "1.-1",
		"1.+5", "99999999999999999999"} {
		if got, err := ParseFactor("memory", s, MaxMemoryFactor); err == nil || !errors.Is(err, ErrInvalid) ||
			got != 0 {
			t.Errorf("%q is taken as %d, %v", s, got, err)
		}
	}
}

// What is booked is never beyond the factor, nor less than there is, nor wraps.
func TestBookable(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		o := Overcommit{Memory: Factor(rnd.IntN(300)), Compute: Factor(rnd.IntN(700))}
		g := GPU{UUID: "GPU-a", Memory: Bytes(rnd.Uint64() >> rnd.IntN(64)), Overcommit: o}
		g.Reserved = Bytes(rnd.Uint64()) % (g.Memory + 1)
		if g.Memory == math.MaxUint64 {
			continue
		}
		most := new(big.Int).Mul(new(big.Int).SetUint64(uint64(g.Usable())), big.NewInt(int64(max(o.Memory, 100))))
		booked := new(big.Int).Mul(new(big.Int).SetUint64(uint64(g.Bookable())), big.NewInt(100))
		if booked.Cmp(most) > 0 || g.Bookable() < g.Usable() {
			t.Fatalf("%s of %s are booked at factor %s", g.Bookable(), g.Usable(), o.Memory)
		}
		if fair := new(big.Int).Sub(most, booked); g.Memory < 1<<50 && fair.Cmp(big.NewInt(100<<20)) >= 0 {
			t.Fatalf("%s of %s are booked at factor %s: more than a MiB is missing", g.Bookable(), g.Usable(), o.Memory)
		}
		if p := g.BookablePercent(); p < FullGPU || p > Percent(max(o.Compute, 100)) || p > Percent(MaxComputeFactor) {
			t.Fatalf("%s of compute at factor %s", p, o.Compute)
		}
		g.MIG = true
		if g.Bookable() != g.Usable() || g.BookablePercent() != FullGPU || g.Contested() {
			t.Fatal("a GPU in MIG mode is given more than once")
		}
		g.MIG, g.Part = false, Instance{Profile: "1g.10gb", Size: 1}
		if g.Bookable() != g.Usable() || g.BookablePercent() != FullGPU || g.Contested() {
			t.Fatal("a MIG instance is given more than once")
		}
	}
}

// Overcommitted memory is not given as burst memory.
func TestNoBurstWhereContested(t *testing.T) {
	t.Parallel()
	r := Request{Memory: GiB, GPUs: 1, Burst: Burst{Percent: 200}}
	g := GPU{UUID: "GPU-a", Memory: 80 * GiB}
	if f := r.On(g); f.Burst != 2*GiB {
		t.Errorf("burst is %s", f.Burst)
	}
	g.Overcommit.Compute = 200
	if f := r.On(g); f.Burst != 2*GiB {
		t.Errorf("burst is %s where only compute is overcommitted", f.Burst)
	}
	g.Overcommit.Memory = 101
	if f := r.On(g); f.Burst != 0 || f.Memory != GiB {
		t.Errorf("burst is %s where memory is overcommitted", f.Burst)
	}
}
