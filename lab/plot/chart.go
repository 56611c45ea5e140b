// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// dot is a value at a place of the x axis.
type dot struct{ x, y float64 }

// series is a line and how it looks.
type series struct {
	style string
	dots  []dot
}

// chart is lines over one x axis.
type chart struct {
	title, xLabel string
	lines         []series
	// least and most bound the x axis; ceiling is what no value can be above.
	least, most, ceiling float64
}

// The room around a chart for its title and the numbers and names of its axes.
const (
	roomLeft, roomRight, roomTop, roomBottom = 44, 14, 26, 38
	ticks                                    = 6
)

func (c *canvas) chart(x, y, w, h float64, k chart) {
	c.text(x+roomLeft, y+15, "start", 13, k.title)
	left, right, top, bottom := x+roomLeft, x+w-roomRight, y+roomTop, y+h-roomBottom
	low, high, seen := k.span()
	if !seen {
		c.rect(left, top, right-left, bottom-top, `fill="none" stroke="`+faint+`"`)
		c.text((left+right)/2, (top+bottom)/2, "middle", 12, "no such pod arrived")
		return
	}
	ys := scale(low, high, ticks)
	low, high = ys[0], ys[len(ys)-1]
	toX := func(v float64) float64 { return left + (v-k.least)/(k.most-k.least)*(right-left) }
	toY := func(v float64) float64 { return bottom - (v-low)/(high-low)*(bottom-top) }
	for _, v := range ys {
		c.line(left, toY(v), right, toY(v), `stroke="`+faint+`"`)
		c.text(left-6, toY(v)+4, "end", 11, number(v)+" %")
	}
	for _, v := range scale(k.least, k.most, ticks) {
		if v < k.least || v > k.most {
			continue
		}
		c.line(toX(v), bottom, toX(v), bottom+4, `stroke="`+ink+`"`)
		c.text(toX(v), bottom+16, "middle", 11, number(v))
	}
	c.line(left, bottom, right, bottom, `stroke="`+ink+`"`)
	c.text((left+right)/2, bottom+32, "middle", 11, k.xLabel)
	// The first policy is asked about, so it lies over the others.
	for _, l := range slices.Backward(k.lines) {
		var d strings.Builder
		for _, p := range l.dots {
			if p.x < k.least || p.x > k.most {
				continue
			}
			step := "L"
			if d.Len() == 0 {
				step = "M"
			}
			d.WriteString(step + px(toX(p.x)) + " " + px(toY(p.y)))
		}
		c.path(d.String(), `fill="none" stroke-width="2" `+l.style)
	}
}

// span is the range of the values that are seen; false when none is.
func (k *chart) span() (low, high float64, seen bool) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, l := range k.lines {
		for _, p := range l.dots {
			if p.x >= k.least && p.x <= k.most {
				low, high = min(low, p.y), max(high, p.y)
			}
		}
	}
	if low > high {
		return 0, 0, false
	}
	if high-low < 1 {
		high = min(low+1, max(k.ceiling, high))
		low = max(0, high-1)
	}
	return low, high, true
}

// scale are round numbers from at most low to at least high, about as many as asked for.
func scale(low, high float64, about int) []float64 {
	raw := (high - low) / float64(about)
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5, 10} {
		if m*step >= raw {
			step *= m
			break
		}
	}
	var out []float64
	for k := math.Floor(low/step + 1e-9); ; k++ {
		out = append(out, k*step)
		if k*step >= high-step*1e-9 {
			return out
		}
	}
}

func number(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }
