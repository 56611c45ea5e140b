// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// The size of a GPU in the drawing, and how many nodes are drawn at most.
const (
	barWidth, barHeight, barGap = 5, 18, 0.6
	nodeGap, rowGap             = 5, 6
	mostDrawn                   = 400
)

// The three parts of a GPU.
const (
	bookedColour = "#33638d"
	usableColour = "#cfe3b4"
	lostColour   = "#e4572e"
)

// nodes draws the GPUs of a run's nodes, model by model, the fullest first, and gives the y below them.
func (p *picture) nodes(y float64, r *simulate.Result) float64 {
	every := (len(r.Nodes) + mostDrawn - 1) / mostDrawn
	what := "The GPUs at the end"
	if every > 1 {
		what += fmt.Sprintf(", one node of %d", every)
	}
	p.text(margin, y+16, "start", 13, fmt.Sprintf("%s, %s, seed %d", what, r.Policy, r.Seed))
	p.key(y + 7)
	y += 26
	for _, group := range byModel(r.Nodes) {
		p.text(margin, y+12, "start", 11, group.label())
		y = p.bars(y+18, group, every) + rowGap
	}
	return y
}

// key says what the colours mean.
func (p *picture) key(y float64) {
	x := float64(width - 420)
	for _, k := range []struct{ colour, name string }{
		{bookedColour, "booked"}, {usableColour, "free, a usual pod can use it"}, {lostColour, "free, too small"},
	} {
		p.rect(x, y, 10, 10, `fill="`+k.colour+`"`)
		p.text(x+15, y+9, "start", 11, k.name)
		x += 34 + 6.2*float64(len(k.name))
	}
}

func (p *picture) bars(y float64, g group, every int) float64 {
	x := float64(margin)
	var frames, booked, usable, lost strings.Builder
	for i := 0; i < len(g.nodes); i += every {
		gpus := g.nodes[i].GPUs
		w := float64(len(gpus)) * barWidth
		if x > margin && x+w > width-margin {
			x, y = margin, y+barHeight+rowGap
		}
		box(&frames, x, y, w, barHeight)
		for k, hole := range gpus {
			at := x + float64(k)*barWidth
			low := y + barHeight
			for _, part := range []struct {
				to     *strings.Builder
				amount cluster.Milli
			}{{&booked, cluster.WholeGPU - hole.Free}, {&usable, hole.Free - hole.Lost}, {&lost, hole.Lost}} {
				h := float64(part.amount) * barHeight / float64(cluster.WholeGPU)
				if low -= h; h >= 0.1 {
					box(part.to, at+barGap/2, low, barWidth-barGap, h)
				}
			}
		}
		x += w + nodeGap
	}
	p.path(booked.String(), `fill="`+bookedColour+`"`)
	p.path(usable.String(), `fill="`+usableColour+`"`)
	p.path(lost.String(), `fill="`+lostColour+`"`)
	p.path(frames.String(), `fill="none" stroke="#888" stroke-width="0.5"`)
	return y + barHeight
}

// box is a rectangle as a part of a path, which is short in a file with thousands of them.
func box(to *strings.Builder, x, y, w, h float64) {
	to.WriteString("M" + px(x) + " " + px(y) + "h" + px(w) + "v" + px(h) + "h" + px(-w) + "z")
}

// group is nodes with GPUs of one model.
type group struct {
	model string
	nodes []simulate.Sketch
}

func byModel(nodes []simulate.Sketch) []group {
	var groups []group
	for _, n := range nodes {
		if len(n.GPUs) == 0 {
			continue
		}
		at := slices.IndexFunc(groups, func(g group) bool { return g.model == n.Model })
		if at < 0 {
			at, groups = len(groups), append(groups, group{model: n.Model})
		}
		groups[at].nodes = append(groups[at].nodes, n)
	}
	slices.SortFunc(groups, func(a, b group) int { return cmp.Compare(a.model, b.model) })
	for _, g := range groups {
		slices.SortStableFunc(g.nodes, func(a, b simulate.Sketch) int {
			return cmp.Or(cmp.Compare(len(b.GPUs), len(a.GPUs)), cmp.Compare(free(a), free(b)),
				cmp.Compare(a.Name, b.Name))
		})
	}
	return groups
}

func free(n simulate.Sketch) cluster.Milli {
	sum := cluster.Milli(0)
	for _, hole := range n.GPUs {
		sum += hole.Free
	}
	return sum
}

func (g *group) label() string {
	gpus, idle, lost := 0, cluster.Milli(0), cluster.Milli(0)
	for _, n := range g.nodes {
		gpus += len(n.GPUs)
		for _, hole := range n.GPUs {
			idle += hole.Free
			lost += hole.Lost
		}
	}
	of := func(m cluster.Milli) float64 { return float64(m) / 10 / float64(gpus) }
	return fmt.Sprintf("%s: %d nodes, %d GPUs, %.1f %% booked, %.1f %% fragmented",
		cmp.Or(g.model, "GPUs"), len(g.nodes), gpus, 100-of(idle), of(lost))
}
