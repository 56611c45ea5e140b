// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
)

// usualShares are classes of a share and a count each.
func usualShares(shares ...int64) []Class {
	var classes []Class
	for i := 0; i < len(shares); i += 2 {
		classes = append(classes, Class{Shape: Shape{GPUs: 1, Share: Milli(shares[i])}, Count: shares[i+1]})
	}
	return classes
}

// manyShares are such that in the best packing some of 320 share a GPU with 650 and some with 550.
func manyShares() []Class {
	return usualShares(220, 55, 230, 143, 320, 319, 370, 41, 460, 125, 470, 732, 550, 64, 590, 68, 650, 280, 810, 1047)
}

func inThousandths(c Class) int64 { return 1000 * c.Count }

// A share of 320 fits with one of 650 and with one of 550. The usual mix sees no difference. But two others fit with
// 550, too, and none with 650. So the hole next to 550 is worth more if there are too few of 320.
func TestVariedHolesTellHolesApart(t *testing.T) {
	classes := manyShares()
	plain, varied := newHoles(classes), variedHoles(classes, inThousandths)
	if plain.value(350) != plain.value(450) {
		t.Errorf("in the usual mix a hole of 350 is worth %d and one of 450 %d: they were alike when this test was "+
			"written", plain.value(350), plain.value(450))
	}
	if varied.value(350) >= varied.value(450) {
		t.Errorf("a hole of 350 is worth %d and one of 450 %d: want the second to be worth more", varied.value(350),
			varied.value(450))
	}
	loss := func(h *holes, left Milli) int64 { return h.value(left) - h.value(left-320) - h.size(320) }
	if loss(&varied, 350) >= loss(&varied, 450) {
		t.Errorf("320 spoils %d of a hole of 350 and %d of one of 450: want less of the first", loss(&varied, 350),
			loss(&varied, 450))
	}
}

func TestVariedHolesAreHoles(t *testing.T) {
	for name, classes := range map[string][]Class{
		"usual":    manyShares(),
		"one size": usualShares(500, 7),
		"few":      usualShares(810, 1, 190, 1),
		"none":     nil,
		"unseen":   usualShares(400, 0, 300, 0),
	} {
		t.Run(name, func(t *testing.T) {
			h := variedHoles(classes, inThousandths)
			if again := variedHoles(classes, inThousandths); again != h {
				t.Error("the same classes gave other values")
			}
			if h.value(0) != 0 || h.value(WholeGPU) != int64(WholeGPU) {
				t.Errorf("nothing is worth %d and a GPU %d, want 0 and %d", h.value(0), h.value(WholeGPU), WholeGPU)
			}
			for left := Milli(cell); left <= WholeGPU; left += cell {
				if h.value(left) < h.value(left-cell) {
					t.Errorf("a hole of %d is worth %d, less than the %d of a smaller one", left, h.value(left),
						h.value(left-cell))
				}
				for _, c := range classes {
					// Each of three values is rounded.
					if loss := h.value(left) - h.value(left-min(left, c.Share)) - h.size(c.Share); c.Share <= left &&
						loss < -1 {
						t.Errorf("a share of %d makes a hole of %d worth %d more", c.Share, left, -loss)
					}
				}
			}
		})
	}
}
