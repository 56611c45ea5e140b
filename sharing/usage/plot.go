// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"slices"
	"strings"
)

// The measures of a plot, in pixels.
const (
	plotWidth, plotNames = 760, 240
	plotBar, plotGap     = 18, 8
	plotTop              = 44
)

// bar is one part of a row's bar: what it is, its colour, and its hours.
type bar struct {
	name, colour string
	hours        func(Row) float64
}

func bars() []bar {
	return []bar{
		{"used", "#2b7a4b", func(r Row) float64 { return max(0, r.Granted-r.Wasted-r.Unknown) }},
		{"wasted at work", "#e0a030", func(r Row) float64 { return max(0, r.Wasted-r.Idle) }},
		{"idle", "#c0392b", func(r Row) float64 { return r.Idle }},
		{"unknown", "#b0b0b0", func(r Row) float64 { return r.Unknown }},
	}
}

// Plot draws a report as SVG: for each row a bar of what was granted, and what became of it; the longest first. The
// same rows give the same bytes.
func Plot(rows []Row, by []string) []byte {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b Row) int {
		switch {
		case a.Granted > b.Granted:
			return -1
		case a.Granted < b.Granted:
			return 1
		}
		return 0
	})
	longest := 0.0
	for _, r := range rows {
		longest = max(longest, r.Granted)
	}
	var out strings.Builder
	height := plotTop + len(rows)*(plotBar+plotGap) + plotGap
	fmt.Fprintf(&out,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		plotNames+plotWidth+100, height)
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for i, b := range bars() {
		x := plotNames + i*130
		fmt.Fprintf(&out, `<rect x="%d" y="12" width="12" height="12" fill="%s"/><text x="%d" y="22">%s</text>`+"\n", x,
			b.colour, x+18, b.name)
	}
	for i, r := range rows {
		y := plotTop + i*(plotBar+plotGap)
		fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", plotNames-8, y+13,
			escaped(label(r, by)))
		x := float64(plotNames)
		for _, b := range bars() {
			if longest == 0 {
				break
			}
			width := b.hours(r) / longest * plotWidth
			if width > 0 {
				fmt.Fprintf(&out, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", x, y, width,
					plotBar, b.colour)
			}
			x += width
		}
		fmt.Fprintf(&out, `<text x="%.1f" y="%d">%.1f GPU h</text>`+"\n", x+6, y+13, r.Granted)
	}
	out.WriteString("</svg>\n")
	return []byte(out.String())
}

// label names a row, and shortens names that are too long to be shown.
func label(r Row, by []string) string {
	var parts []string
	for _, k := range by {
		if v := r.Labels[k]; v != "" {
			parts = append(parts, v)
		}
	}
	const room = 36
	name := []rune(strings.Join(parts, " / "))
	if len(name) > room {
		name = append(name[:room-1], '…')
	}
	if len(name) == 0 {
		return "all others"
	}
	return string(name)
}

func escaped(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(strings.ToValidUTF8(s,
		"?"))
}
