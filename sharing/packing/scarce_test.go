// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package packing_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kerf-gpu/kerf/sharing/packing"
)

// listed are all fillings of bins of some kinds, and prices to find the best by.
type listed struct {
	all    [][][]float64
	prices []float64
}

func (l listed) Of(kind int) []float64 {
	filling, _ := best(l.all[kind], l.prices)
	return filling
}

func (l listed) Value(kind int) float64 {
	_, worth := best(l.all[kind], l.prices)
	return worth
}

func scarce(bins, wanted, sizes []float64, all [][][]float64) []float64 {
	return packing.Scarce(bins, wanted, sizes, func(p []float64) packing.Fillings { return listed{all, p} })
}

func TestScarcePricesOfKnownRooms(t *testing.T) {
	small, large := fillings([]int{4, 8}, 4), fillings([]int{4, 8}, 8)
	for name, tt := range map[string]struct {
		bins, wanted, want []float64
	}{
		"room for all":                     {[]float64{0, 9}, []float64{3, 3}, []float64{0, 0}},
		"both wait":                        {[]float64{0, 2}, []float64{9, 9}, []float64{4, 8}},
		"the large wait, the small do not": {[]float64{5, 2}, []float64{3, 9}, []float64{0, 8}},
		"the small take room of the large": {[]float64{1, 2}, []float64{2, 9}, []float64{4, 8}},
		"two small take room of one large": {[]float64{3, 4}, []float64{9, 1}, []float64{4, 8}},
		"not enough free for the large":    {[]float64{5, 0}, []float64{3, 2}, []float64{0, 8}},
		"no bins":                          {[]float64{0, 0}, []float64{1, 1}, []float64{4, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			got := scarce(tt.bins, tt.wanted, []float64{4, 8}, [][][]float64{small, large})
			for i := range got {
				if math.Abs(got[i]-tt.want[i]) > 1e-6 {
					t.Fatalf("got %v, want %v", got, tt.want)
				}
			}
		})
	}
}

// The dual of the packing is what its bins are worth at the prices, and what items gain beyond them. No prices make it
// less, neither some by lot nor those nearby.
func TestScarcePricesMakeTheDualLeast(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 60 {
		var items []int
		var sizes, wanted, bins []float64
		for size := 1; size <= 8; size++ {
			if r.IntN(2) == 0 {
				items, sizes, wanted = append(items, size), append(sizes, float64(size)),
					append(wanted, float64(r.IntN(12)))
			}
		}
		var all [][][]float64
		for _, bin := range []int{3, 5, 8} {
			all, bins = append(all, fillings(items, bin)), append(bins, float64(r.IntN(9)))
		}
		dual := func(prices []float64) float64 {
			sum := 0.0
			for k, l := 0, (listed{all, prices}); k < len(bins); k++ {
				sum += bins[k] * max(0, l.Value(k))
			}
			for i := range prices {
				sum += wanted[i] * (sizes[i] - prices[i])
			}
			return sum
		}
		got := scarce(bins, wanted, sizes, all)
		least := dual(got)
		for i := range got {
			if got[i] < 0 || got[i] > sizes[i] {
				t.Fatalf("%v of %v: price %f", wanted, sizes, got[i])
			}
		}
		for n := range 400 {
			other := make([]float64, len(got))
			for i := range other {
				if other[i] = r.Float64() * sizes[i]; n%2 == 0 {
					other[i] = min(max(0, got[i]+0.2*(r.Float64()-0.5)), sizes[i])
				}
			}
			if d := dual(other); d < least-1e-4 {
				t.Fatalf("%v of %v in %v: %f at %v, and %f at %v", wanted, sizes, bins, least, got, d, other)
			}
		}
	}
}
