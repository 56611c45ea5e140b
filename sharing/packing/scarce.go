// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package packing

// Fillings are the best fillings of bins of several kinds at some prices.
type Fillings interface {
	// Worth is what that of a kind is worth.
	Worth(kind int) float64
	// Of is that of a kind, as a number of each item.
	Of(kind int) []float64
}

// Scarce are the dual prices of placing as much as can be of the wanted number of each item in so many bins of each kind: how
// much of the size that is placed one more place for an item brings. An item of which all are placed whatever happens costs
// nothing, one that waits for room its size. Fill is the best filling of each kind of bin at the prices. The prices lie
// between 0 and the sizes.
func Scarce(bins, wanted, sizes []float64, fill func(prices []float64) Fillings) []float64 {
	limits := append(append(make([]float64, 0, len(bins)+len(wanted)), bins...), wanted...)
	prices := make([]float64, len(wanted))
	duals := Most(limits, func(duals, takes []float64, _ float64) float64 {
		price(prices, sizes, duals[len(bins):])
		return fullest(takes, duals, len(bins), sizes, fill(prices))
	})
	price(prices, sizes, duals[len(bins):])
	return prices
}

// price writes what a place for each item brings: its size, less what one more of the item would.
func price(prices, sizes, duals []float64) {
	for i := range prices {
		prices[i] = min(max(0, sizes[i]-duals[i]), sizes[i])
	}
}

// fullest writes the bin whose filling is worth most beyond what the bin costs. It gives what that places, below 0 when
// there is no such bin.
func fullest(takes, duals []float64, bins int, sizes []float64, best Fillings) float64 {
	kind, most := -1, gain
	for k := range bins {
		if more := best.Worth(k) - duals[k]; more > most {
			kind, most = k, more
		}
	}
	if kind < 0 {
		return -1
	}
	takes[kind] = 1
	placed := 0.0
	for i, n := range best.Of(kind) {
		takes[bins+i] = n
		placed += n * sizes[i]
	}
	return placed
}
