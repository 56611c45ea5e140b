// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unicode/utf8"
)

// Whatever the amounts: the cells add up, nothing that exists is invisible while there is room, and what is
// more is never shown as less.
func TestApportionProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		amounts := make([]uint64, 1+r.IntN(12))
		present := 0
		for i := range amounts {
			switch r.IntN(4) {
			case 0:
			case 1:
				amounts[i] = 1 + r.Uint64N(10)
			default:
				amounts[i] = 1 + r.Uint64N(1<<uint(1+r.IntN(55)))
			}
			if amounts[i] > 0 {
				present++
			}
		}
		width := r.IntN(200)
		cells := apportion(amounts, width)
		sum := 0
		for i, c := range cells {
			sum += c
			if c < 0 || (amounts[i] == 0 && c != 0) || (amounts[i] > 0 && c == 0 && present <= width) {
				t.Fatalf("apportion(%v, %d) = %v", amounts, width, cells)
			}
		}
		if want := width; present > 0 && sum != want {
			t.Fatalf("apportion(%v, %d) = %v: sum %d", amounts, width, cells, sum)
		}
		if again := apportion(amounts, width); !slices.Equal(cells, again) {
			t.Fatalf("apportion(%v, %d) is not deterministic: %v, %v", amounts, width, cells, again)
		}
	}
}

func TestMeter(t *testing.T) {
	n := func(v uint64) *uint64 { return &v }
	for name, tt := range map[string]struct {
		used  *uint64
		total uint64
		want  string
	}{
		"unknown": {nil, 8, "????"},
		"no cap":  {n(1), 0, "????"},
		"empty":   {n(0), 8, "    "},
		"a trace": {n(1), 1 << 60, "▏   "},
		"half":    {n(4), 8, "██  "},
		"a part":  {n(5), 16, "█▎  "},
		"almost":  {n(1<<63 - 1), 1 << 63, "███▉"},
		"full":    {n(8), 8, "████"},
		"over":    {n(1<<64 - 1), 8, "████"},
		"largest": {n(1 << 63), 1<<64 - 1, "██  "},
	} {
		t.Run(name, func(t *testing.T) {
			got := meter(tt.used, tt.total, 4)
			if got != tt.want || utf8.RuneCountInString(got) != 4 {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
