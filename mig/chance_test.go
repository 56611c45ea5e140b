// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"math"
	"testing"
)

// exactly is the number that is not exceeded with the probability, by adding up the terms of the definition.
func exactly(expected, unsure, probability float64) float64 {
	sum := 0.0
	for n := 0.0; ; n++ {
		log := n*math.Log(expected) - expected
		below, _ := math.Lgamma(n + 1)
		if unsure > 0 {
			r := 1 / unsure
			top, _ := math.Lgamma(n + r)
			bottom, _ := math.Lgamma(r)
			log = top - bottom + r*math.Log(r/(r+expected)) + n*math.Log(expected/(r+expected))
		}
		if sum += math.Exp(log - below); sum >= probability {
			return n
		}
	}
}

func TestNotExceeded(t *testing.T) {
	for _, expected := range []float64{0.3, 1, 5, 40, 64, 65, 200, 3000} {
		for _, unsure := range []float64{0, 0.001, 0.05, 0.5} {
			for draw := range draws {
				p := (float64(draw) + 0.5) / draws
				got, want := notExceeded(expected, unsure, p), exactly(expected, unsure, p)
				// Above manyWanted it is as near as the distributions that it is taken from are.
				if near := max(1, 0.02*want); expected <= manyWanted && got != want || math.Abs(got-want) > near {
					t.Errorf("of %g, unsure by the root of %g, with %.3f: %g, want %g", expected, unsure, p, got, want)
				}
			}
		}
	}
}
