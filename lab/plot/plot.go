// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package plot draws runs of an experiment as one SVG. It shows allocation, fragmentation and refused pods over the
// load, and the GPUs of the nodes at the end.
//
// It promises a well-formed document that needs no script, font or other file, and the same bytes for the same runs.
// It does not promise that a drawing of thousands of nodes shows each of them.
package plot

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing/simulate"
)

const (
	width     = 960
	margin    = 12
	bigHeight = 266
	lowHeight = 190
	// seenFrom is the load from which a fill is shown: before it nothing is refused, and all policies are alike.
	seenFrom = 60
)

// Draw is the SVG of runs that were made with detail and all with, or all without, departures. Runs of one policy are
// shown as their mean, and the nodes of its first run.
func Draw(runs []simulate.Result) ([]byte, error) {
	if len(runs) == 0 || len(runs[0].Samples) == 0 {
		return nil, errors.New("plot: no run with samples")
	}
	p := picture{xLabel: "GPU that arrived, % of the cluster", departures: runs[0].Load > 0}
	if p.departures {
		p.xLabel = "mean life times"
	}
	for i := range runs {
		if (runs[i].Load > 0) != p.departures {
			return nil, errors.New("plot: runs with and without departures")
		}
		p.add(&runs[i])
	}
	title := headline(runs)
	p.text(margin, 24, "start", 16, title)
	y := p.legend(40)
	y = p.charts(y + 8)
	for _, l := range p.policies {
		y = p.nodes(y+10, l.first)
	}
	return p.page(width, y+margin, title), nil
}

// picture is a canvas and the runs, policy by policy.
type picture struct {
	canvas
	policies   []*policy
	xLabel     string
	departures bool
}

// policy is all runs of one.
type policy struct {
	name, style string
	first       *simulate.Result
	runs        []*simulate.Result
}

// colours are distinguishable by people with color blindness; a second round is dashed.
func colours() []string {
	return []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}
}

func (p *picture) add(r *simulate.Result) {
	at := slices.IndexFunc(p.policies, func(l *policy) bool { return l.name == r.Policy })
	if at < 0 {
		at = len(p.policies)
		style := fmt.Sprintf("stroke=%q", colours()[at%len(colours())])
		if at >= len(colours()) {
			style += ` stroke-dasharray="5 3"`
		}
		p.policies = append(p.policies, &policy{name: r.Policy, style: style, first: r})
	}
	p.policies[at].runs = append(p.policies[at].runs, r)
}

func headline(runs []simulate.Result) string {
	seeds := map[int64]bool{}
	for i := range runs {
		seeds[runs[i].Seed] = true
	}
	var words []string
	if runs[0].Trace != "" {
		words = append(words, runs[0].Trace)
	}
	words = append(words, fmt.Sprintf("%d GPUs", runs[0].CapacityMilli/1000))
	if runs[0].Load > 0 {
		words = append(words, fmt.Sprintf("load %.2f, pods leave", runs[0].Load))
	}
	if len(seeds) > 1 {
		return strings.Join(append(words, fmt.Sprintf("mean of %d seeds", len(seeds))), ", ")
	}
	return strings.Join(append(words, fmt.Sprintf("seed %d", runs[0].Seed)), ", ")
}

// legend names the lines, and gives the y below it.
func (p *picture) legend(y float64) float64 {
	x := float64(margin)
	for _, l := range p.policies {
		w := 42 + 7.5*float64(len(l.name))
		if x+w > width-margin {
			x, y = margin, y+20
		}
		p.line(x, y, x+24, y, `stroke-width="3" `+l.style)
		p.text(x+30, y+4, "start", 12, l.name)
		x += w
	}
	return y + 12
}

func (p *picture) charts(y float64) float64 {
	half, third := float64(width-2*margin)/2, float64(width-2*margin)/3
	p.chart(margin, y, half, bigHeight, p.over("Allocated GPU, % of the cluster",
		func(s *simulate.Sample) (float64, bool) { return s.Allocated, true }))
	p.chart(margin+half, y, half, bigHeight,
		p.over("Fragmentation, % of the idle GPU", func(s *simulate.Sample) (float64, bool) {
			return s.Fragmentation,
				true
		}))
	y += bigHeight + 8
	for i, class := range simulate.Classes() {
		refused := p.over("Refused "+inWords(class)+", % so far", func(s *simulate.Sample) (float64, bool) {
			v, ok := s.Refused[class]
			return v, ok
		})
		p.chart(margin+third*float64(i%3), y+float64(i/3*lowHeight), third, lowHeight, refused)
	}
	return y + 2*lowHeight
}

func inWords(class string) string {
	switch class {
	case "cpu-only":
		return "pods without GPU"
	case "share":
		return "shares"
	case "1":
		return "pods of 1 GPU"
	}
	return "pods of " + class + " GPUs"
}

// over is the mean of a value over the runs of each policy, moment by moment.
func (p *picture) over(title string, value func(*simulate.Sample) (float64, bool)) chart {
	k := chart{title: title, xLabel: p.xLabel, ceiling: 100}
	for _, l := range p.policies {
		line := series{style: l.style}
		for i := range l.moments() {
			sum, n := 0.0, 0.0
			for _, r := range l.runs {
				if v, ok := value(&r.Samples[i]); ok {
					sum, n = sum+v, n+1
				}
			}
			at := l.first.Samples[i].At
			k.most = max(k.most, at)
			if n > 0 {
				line.dots = append(line.dots, dot{at, sum / n})
			}
		}
		k.lines = append(k.lines, line)
	}
	if !p.departures && k.most >= 100 {
		k.least = seenFrom
	}
	k.most = max(k.most, k.least+1)
	return k
}

// moments is how many samples all runs have: a mean of fewer runs would jump.
func (l *policy) moments() int {
	least := len(l.first.Samples)
	for _, r := range l.runs {
		least = min(least, len(r.Samples))
	}
	return least
}
