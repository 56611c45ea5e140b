// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// The measures of a drawing, in pixels: Grafana's grid has 24 columns.
const (
	column, row = 50, 30
	gap         = 4
	head        = 34 // above the panels
	titleRoom   = 24
	lineRoom    = 15
	axis        = 62 // for the numbers next to a graph
)

// canvas is a file that is written.
type canvas struct{ strings.Builder }

func (c *canvas) line(format string, args ...any) { fmt.Fprintf(&c.Builder, format+"\n", args...) }

func (c *canvas) text(x, y float64, style, s string) {
	c.line(`<text x="%.1f" y="%.1f" %s>%s</text>`, x, y, style, escaped(s))
}

// box is where a panel's content goes.
type box struct{ x, y, w, h float64 }

func colour(i int) string {
	all := []string{"#3b7dd8", "#2b9a66", "#e0a030", "#c0392b", "#7d5bd0", "#1f9fb0", "#b8568f", "#7a7a7a"}
	return all[i%len(all)]
}

// draw is the dashboard as SVG. The same answers give the same bytes.
func draw(d dashboard) []byte {
	bottom := 0
	for _, p := range d.Panels {
		bottom = max(bottom, p.GridPos.Y+p.GridPos.H)
	}
	c := &canvas{}
	c.line(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`,
		24*column, head+bottom*row)
	c.line(`<rect width="100%%" height="100%%" fill="#f4f5f7"/>`)
	c.text(gap, 22, `font-size="16" font-weight="bold"`, d.Title)
	for _, p := range d.Panels {
		g := p.GridPos
		x, y, w, h := float64(g.X*column+gap/2), float64(head+g.Y*row+gap/2), float64(g.W*column-gap),
			float64(g.H*row-gap)
		c.line(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="white" stroke="#d0d3d8"/>`, x, y, w, h)
		c.text(x+8, y+16, `font-weight="bold" font-size="12"`, p.Title)
		p.draw(c, box{x + 8, y + titleRoom, w - 16, h - titleRoom - 6})
	}
	c.line("</svg>")
	return []byte(c.String())
}

func (p *panel) draw(c *canvas, b box) {
	if !slices.ContainsFunc(p.found, func(s []series) bool { return len(s) > 0 }) {
		c.text(b.x+b.w/2, b.y+b.h/2, `text-anchor="middle" fill="#808080"`, "No data")
		return
	}
	switch p.Type {
	case "stat":
		p.stat(c, b)
	case "table":
		p.table(c, b)
	case "bargauge":
		p.bars(c, b)
	default:
		p.graph(c, b)
	}
}

// stat writes the first value, or its name where the panel shows that.
func (p *panel) stat(c *canvas, b box) {
	s := p.found[0][0]
	text := p.text(s.last())
	if p.Options.TextMode == "name" {
		text = p.Targets[0].name(s.Labels)
	}
	c.text(b.x+b.w/2, b.y+b.h/2+8, fmt.Sprintf(`text-anchor="middle" font-size="%.0f"`,
		min(28, 1.7*b.w/float64(max(1, len([]rune(text)))))), text)
}

// bars draws a bar for each series, the longest being the largest value or 1.
func (p *panel) bars(c *canvas, b box) {
	most := 1.0
	for _, s := range p.found[0] {
		most = max(most, s.last())
	}
	for i, s := range p.found[0] {
		y := b.y + float64(i)*2*lineRoom
		if y+lineRoom > b.y+b.h {
			return
		}
		c.text(b.x, y+11, "", p.Targets[0].name(s.Labels))
		c.line(`<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s"/>`, b.x+b.w/4, y,
			max(0, s.last()/most)*b.w*0.6, lineRoom, colour(0))
		c.text(b.x+b.w, y+11, `text-anchor="end"`, p.text(s.last()))
	}
}

// table has a row for each set of labels, and a column for each label and each query.
func (p *panel) table(c *canvas, b box) {
	rows, labels := map[string]map[string]string{}, map[string]bool{}
	var values []string
	for i, of := range p.found {
		value := string(rune('A' + i))
		values = append(values, value)
		for _, s := range of {
			delete(s.Labels, "__name__")
			key := fmt.Sprint(s.Labels) // of a map in order
			if rows[key] == nil {
				rows[key] = maps.Clone(s.Labels)
			}
			for k := range s.Labels {
				labels[k] = true
			}
			rows[key]["\x00"+value] = p.text(s.last())
		}
	}
	columns := slices.Sorted(maps.Keys(labels))
	wide := b.w / float64(len(columns)+len(values))
	cell := func(i int, y float64, style, s string) {
		room := max(4, int(wide/6))
		if r := []rune(s); len(r) > room {
			s = string(r[:room-1]) + "…"
		}
		c.text(b.x+float64(i)*wide, y, style, s)
	}
	for i, k := range append(slices.Clone(columns), values...) {
		cell(i, b.y+10, `fill="#606060" font-weight="bold"`, k)
	}
	y := b.y + 10
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if y += lineRoom; y > b.y+b.h {
			return
		}
		for i, k := range columns {
			cell(i, y, "", rows[key][k])
		}
		for i, v := range values {
			cell(len(columns)+i, y, "", rows[key]["\x00"+v])
		}
	}
}

// curve is a series as a graph has it.
type curve struct {
	name   string
	values []sample
}

// graph draws values over time, one above the other where the panel stacks them.
func (p *panel) graph(c *canvas, b box) {
	var all []curve
	for i, of := range p.found {
		for _, s := range of {
			if len(s.Values) > 0 {
				all = append(all, curve{p.Targets[i].name(s.Labels), s.Values})
			}
		}
	}
	stacked := p.FieldConfig.Defaults.Custom.Stacking.Mode == "normal"
	below := map[float64]float64{}
	most, from, to := 0.0, math.Inf(1), math.Inf(-1)
	for _, one := range all {
		for i, v := range one.values {
			if stacked {
				below[v.at] += v.value
				one.values[i].value = below[v.at]
			}
			most, from, to = max(most, one.values[i].value), min(from, v.at), max(to, v.at)
		}
	}
	if most == 0 {
		most = 1
	}
	legend := min(len(all), 3)
	h := b.h - float64(legend*lineRoom) - 6
	x := func(at float64) float64 { return b.x + axis + (b.w-axis)*(at-from)/max(1, to-from) }
	y := func(v float64) float64 { return b.y + h - h*max(0, v)/(1.05*most) }
	for _, v := range []float64{0, most / 2, most} {
		c.line(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#e3e5e8"/>`, b.x+axis, b.x+b.w, y(v), y(v))
		c.text(b.x+axis-4, y(v)+4, `text-anchor="end" fill="#606060"`, p.text(v))
	}
	for i, one := range slices.Backward(all) { // the highest of a stack first
		var line strings.Builder
		for _, v := range one.values {
			fmt.Fprintf(&line, "%.1f,%.1f ", x(v.at), y(v.value))
		}
		if stacked {
			first, last := one.values[0].at, one.values[len(one.values)-1].at
			c.line(`<polygon points="%s%.1f,%.1f %.1f,%.1f" fill="%s" stroke="%s"/>`, line.String(), x(last), y(0),
				x(first), y(0), colour(i), colour(i))
			continue
		}
		c.line(`<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`, strings.TrimSpace(line.String()),
			colour(i))
	}
	for i, one := range all[:legend] {
		name, at := one.name, b.y+h+float64((i+1)*lineRoom)
		if i == 2 && len(all) > legend {
			name = fmt.Sprintf("%s, and %d more", name, len(all)-legend)
		}
		c.line(`<rect x="%.1f" y="%.1f" width="10" height="10" fill="%s"/>`, b.x, at-9, colour(i))
		c.text(b.x+16, at, "", name)
	}
}

func escaped(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(strings.ToValidUTF8(s,
		"?"))
}
