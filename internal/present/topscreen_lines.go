// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
)

// topLine is one line of a TopScreen's list.
type topLine struct {
	// key identifies the node, GPU or owner in each sample.
	key, node string
	cells     []string
	style     style
	// opens is what enter shows; empty for a line that has nothing below it.
	opens topScope
	// name to idle are what lines are ordered by; unknown values are below 0.
	name                     string
	memory, sm, energy, idle float64
}

// lines are the lines of the list, in order.
func (s TopScreen) lines() []topLine {
	var out []topLine
	for _, n := range s.nodes {
		if s.at.node != "" && n.Name != s.at.node {
			continue
		}
		var of []topLine
		switch s.view.By {
		case "node":
			of = []topLine{nodeLine(n)}
		case "gpu":
			of = s.gpuLines(n)
		default:
			of = s.ownerLines(n)
		}
		for _, l := range of {
			if l.has(s.filter) {
				out = append(out, l)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b topLine) int {
		switch s.view.Order {
		case "memory":
			return cmp.Compare(b.memory, a.memory)
		case "sm":
			return cmp.Compare(b.sm, a.sm)
		case "energy":
			return cmp.Compare(b.energy, a.energy)
		case "idle":
			return cmp.Compare(b.idle, a.idle)
		case "name":
			return cmp.Compare(a.name, b.name)
		}
		return 0 // by node and GPU, as they come
	})
	return reversed(out, s.view.Reverse)
}

// headOf are the titles of the columns.
func headOf(v TopView) []string {
	switch v.By {
	case "node":
		return []string{"NODE", "GPUS", "MEMORY", "ALLOCATABLE", "SM", "GRANTS", "DRIVER"}
	case "gpu":
		return append(gpuHead(false), v.more("UUID")...)
	}
	return append(useHead(), v.more("GRANT-ID")...)
}

// more is a cell that only a wide view has.
func (v TopView) more(cell string) []string {
	if v.Wide {
		return []string{cell}
	}
	return nil
}

// nodeLine sums up the GPUs of a node. A sum of which one GPU is unknown is unknown.
func nodeLine(n TopNode) topLine {
	var memory, allocatable uint64
	var sm, watts float64
	grants := 0
	gpus := n.Sample.GetGpus()
	known := len(gpus) > 0
	knownSM, knownTotal, knownWatts := known, known, known
	for _, g := range gpus {
		known = known && g.MemoryUsedBytes != nil
		knownTotal = knownTotal && g.MemoryAllocatableBytes != nil
		knownSM = knownSM && g.SmRatio != nil
		knownWatts = knownWatts && g.PowerWatts != nil
		memory += g.GetMemoryUsedBytes()
		allocatable += g.GetMemoryAllocatableBytes()
		sm += g.GetSmRatio() / float64(len(gpus))
		watts += g.GetPowerWatts()
		grants += len(slices.DeleteFunc(slices.Clone(g.GetUsages()),
			func(u *telemetryapi.Usage) bool { return u.GetOwner() != "grant" }))
	}
	l := topLine{key: "node " + n.Name, node: n.Name, name: n.Name, opens: topScope{node: n.Name},
		memory: value(known, float64(memory)), sm: value(knownSM, sm), energy: value(knownWatts, watts), idle: -1}
	l.cells = []string{or(n.Name), strconv.Itoa(len(gpus)), unknown, unknown, unknown, strconv.Itoa(grants),
		or(n.Sample.GetDriverVersion())}
	if known {
		l.cells[2] = size(memory)
	}
	if knownTotal {
		l.cells[3] = size(allocatable)
	}
	if knownSM {
		l.cells[4] = ratio(sm)
	}
	return l
}

func (s TopScreen) gpuLines(n TopNode) []topLine {
	var out []topLine
	for _, g := range s.gpusOf(n) {
		id := gpuID(g)
		l := topLine{key: "gpu " + n.Name + " " + id, node: n.Name, opens: topScope{n.Name, id},
			name:   fmt.Sprintf("%s %06d", n.Name, g.GetIndex()),
			memory: value(g.MemoryUsedBytes != nil, float64(g.GetMemoryUsedBytes())),
			sm:     value(g.SmRatio != nil, g.GetSmRatio()),
			energy: value(g.PowerWatts != nil, g.GetPowerWatts()), idle: -1}
		l.cells = append(gpuCells(g, false), s.view.more(or(g.GetUuid()))...)
		l.cells[0] = s.place(n, l.cells[0])
		if g.GetError() != "" {
			l.style = red
		}
		out = append(out, l)
	}
	return out
}

func (s TopScreen) ownerLines(n TopNode) []topLine {
	part := &telemetryapi.Sample{Gpus: s.gpusOf(n)}
	var out []topLine
	for _, r := range topOwners(part, s.view.By) {
		u := r.use
		l := topLine{node: n.Name, name: topName(u),
			memory: value(u.MemoryBytes != nil, u.GetMemoryBytes().GetValue()),
			sm:     value(u.SmRatio != nil, u.GetSmRatio().GetValue()),
			energy: value(u.EnergyJoules != nil, u.GetEnergyJoules().GetValue()),
			idle:   value(u.IdleSeconds != nil, u.GetIdleSeconds())}
		l.cells = append(r.cells(), s.view.more(or(u.GetGrantId()))...)
		l.cells[0] = s.place(n, l.cells[0])
		l.key = fmt.Sprintf("%s %s %s %s %s %d", s.view.By, n.Name, gpuID(r.gpu), l.name, u.GetGrantId(),
			u.GetInstanceStart())
		if u.GetOwner() == "grant" &&
			u.GetMemoryBytes().GetValue() > float64(u.GetMemoryGuaranteedBytes()+u.GetMemoryBurstBytes()) {
			l.style = yellow
		}
		out = append(out, l)
	}
	return out
}

// gpusOf are the GPUs of a node that the user's scope leaves.
func (s TopScreen) gpusOf(n TopNode) []*telemetryapi.GPU {
	if s.at.gpu == "" {
		return n.Sample.GetGpus()
	}
	return slices.DeleteFunc(slices.Clone(n.Sample.GetGpus()),
		func(g *telemetryapi.GPU) bool { return gpuID(g) != s.at.gpu })
}

// place adds the node to the name of a GPU where lines are of several nodes.
func (s TopScreen) place(n TopNode, gpu string) string {
	if s.at.node != "" || len(s.nodes) < 2 {
		return gpu
	}
	return or(n.Name) + "/" + gpu
}

// gpuID identifies a GPU on its node.
func gpuID(g *telemetryapi.GPU) string { return cmp.Or(g.GetUuid(), strconv.Itoa(int(g.GetIndex()))) }

// value is v, or below every known value.
func value(known bool, v float64) float64 {
	if !known {
		return -1
	}
	return v
}
