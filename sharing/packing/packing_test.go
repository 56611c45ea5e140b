// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package packing_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kerf-gpu/kerf/sharing/packing"
)

// fillings are all ways to fill a bin of the size with items of the sizes, as numbers of each.
func fillings(sizes []int, bin int) [][]float64 {
	if len(sizes) == 0 {
		return [][]float64{nil}
	}
	var out [][]float64
	for n := 0; n*sizes[0] <= bin; n++ {
		for _, rest := range fillings(sizes[1:], bin-n*sizes[0]) {
			out = append(out, append([]float64{float64(n)}, rest...))
		}
	}
	return out
}

func best(all [][]float64, prices []float64) ([]float64, float64) {
	var filling []float64
	most := -1.0
	for _, f := range all {
		worth := 0.0
		for i, n := range f {
			worth += n * prices[i]
		}
		if worth > most {
			filling, most = f, worth
		}
	}
	return filling, most
}

func TestPricesOfKnownMixes(t *testing.T) {
	for name, tt := range map[string]struct {
		sizes  []int
		wanted []float64
		bin    int
		want   []float64
	}{
		"halves":                     {[]int{5}, []float64{7}, 10, []float64{0.5}},
		"what fills holes is free":   {[]int{8, 2}, []float64{10, 3}, 10, []float64{1, 0}},
		"as many as there are holes": {[]int{8, 1}, []float64{1, 30}, 10, []float64{0.8, 0.1}},
		"a mix that fills":           {[]int{4, 3}, []float64{5, 5}, 10, []float64{0.5, 0.25}},
	} {
		t.Run(name, func(t *testing.T) {
			all := fillings(tt.sizes, tt.bin)
			alone := make([]int, len(tt.sizes))
			for i, s := range tt.sizes {
				alone[i] = tt.bin / s
			}
			got := packing.Prices(tt.wanted, alone, func(p []float64) ([]float64, float64) { return best(all, p) })
			for i := range got {
				if math.Abs(got[i]-tt.want[i]) > 1e-6 {
					t.Fatalf("got %v, want %v", got, tt.want)
				}
			}
		})
	}
}

// By duality the prices are right when no filling is worth more than a bin, and the wanted items are worth as many bins
// as some packing uses: no prices can be worth more.
func TestPricesAreFeasibleAndNoneAreWorthMore(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 60 {
		sizes, wanted, alone := []int{}, []float64{}, []int{}
		for size := 1; size <= 12; size++ {
			if r.IntN(3) == 0 {
				sizes, wanted, alone = append(sizes, size), append(wanted, float64(1+r.IntN(20))),
					append(alone, 12/size)
			}
		}
		all := fillings(sizes, 12)
		value := func(prices []float64) float64 {
			sum := 0.0
			for i, p := range prices {
				sum += p * wanted[i]
			}
			return sum
		}
		got := packing.Prices(wanted, alone, func(p []float64) ([]float64, float64) { return best(all, p) })
		if _, worth := best(all, got); worth > 1+1e-6 && len(sizes) > 0 {
			t.Fatalf("%v of %v: a filling is worth %f at %v", wanted, sizes, worth, got)
		}
		for range 100 {
			other := make([]float64, len(got))
			for i := range other {
				other[i] = r.Float64()
			}
			if _, worth := best(all, other); worth > 0 {
				for i := range other {
					other[i] /= worth
				}
			}
			if value(other) > value(got)+1e-6 {
				t.Fatalf("%v of %v: %v is worth %f, and %v is worth %f", wanted, sizes, got, value(got), other,
					value(other))
			}
		}
	}
}
