// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"fmt"
	"slices"
	"strings"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
)

// MIG is the MIG state of a GPU. Error is why it gives no instance, and PendingReason why it is not as the pool
// requires. SwitchableTo is the mode that a request switches it to ("mig", or "shared"), empty if the mode stays.
// ModeSwitchFor is the request that it switches for now, and ModeSwitchBlockedBy what keeps its mode for now.
type MIG struct {
	Enabled             bool          `json:"enabled"`
	LayoutFromPool      bool          `json:"layoutFromPool"`
	MemorySlices        int32         `json:"memorySlices"`
	Profiles            []string      `json:"profiles"`
	Instances           []MIGInstance `json:"instances"`
	Error               string        `json:"error"`
	PendingReason       string        `json:"pendingReason"`
	SwitchableTo        string        `json:"switchableTo"`
	ModeSwitchFor       string        `json:"modeSwitchFor"`
	ModeSwitchBlockedBy string        `json:"modeSwitchBlockedBy"`
}

// MIGInstance is a MIG instance, from memory slice Start over MemorySlices slices. If it is not Managed, others created
// it. If it is not Ready, it is being created. Grant has it, if one does, and RequestedBy is the owner.
type MIGInstance struct {
	Profile      string `json:"profile"`
	Start        int32  `json:"start"`
	MemorySlices int32  `json:"memorySlices"`
	Managed      bool   `json:"managed"`
	Ready        bool   `json:"ready"`
	UUID         string `json:"uuid"`
	Grant        string `json:"grant"`
	RequestedBy  string `json:"requestedBy"`
}

// fromMIG is nil for a GPU without MIG support, or if nothing is known.
func fromMIG(m *nodeapi.MIGState) *MIG {
	if m == nil || !m.GetCapable() && m.GetError() == "" && m.GetPendingReason() == "" {
		return nil
	}
	out := &MIG{
		Enabled: m.GetEnabled(), LayoutFromPool: m.GetLayoutFromPool(), MemorySlices: m.GetMemorySlices(),
		Profiles: list(m.GetProfiles()), Instances: []MIGInstance{}, Error: m.GetError(),
		PendingReason: m.GetPendingReason(), SwitchableTo: m.GetSwitchableTo(), ModeSwitchFor: m.GetModeSwitchFor(),
		ModeSwitchBlockedBy: m.GetModeSwitchBlockedBy(),
	}
	out.Instances = append(out.Instances, fromInstances(m.GetInstances())...)
	return out
}

func fromInstances(list []*nodeapi.MIGInstance) []MIGInstance {
	var out []MIGInstance
	for _, p := range list {
		out = append(out, MIGInstance{
			Profile: p.GetProfile(), Start: p.GetStart(), MemorySlices: p.GetMemorySlices(), Managed: p.GetManaged(),
			Ready: p.GetReady(), UUID: p.GetUuid(), Grant: p.GetGrant(), RequestedBy: p.GetRequestedBy(),
		})
	}
	return out
}

// The cells of a unit without an instance, and of one with an unmanaged instance.
const (
	freeUnit    = "."
	foreignUnit = "#"
)

// maxUnits bounds what is drawn; no GPU has as many.
const maxUnits = 64

// draw is the GPU's units with the instances' keys on them: "[..abcccc]".
func (m *MIG) draw() string {
	cells := slices.Repeat([]string{freeUnit}, int(min(max(m.MemorySlices, 0), maxUnits)))
	for i := range m.Instances {
		m.mark(cells, i)
	}
	return "[" + strings.Join(cells, "") + "]"
}

// mark puts the key of an instance on its units.
func (m *MIG) mark(cells []string, i int) {
	p := m.Instances[i]
	for u := max(p.Start, 0); u < min(p.Start+p.MemorySlices, int32(len(cells))); u++ { //nolint:gosec // at most maxUnits
		cells[u] = m.key(i)
	}
}

func (m *MIG) key(i int) string {
	switch {
	case !m.Instances[i].Managed:
		return foreignUnit
	case i < len(keys):
		return keys[i : i+1]
	}
	return "+"
}

func (p MIGInstance) state() string {
	switch {
	case !p.Managed:
		return "not made by Kerf"
	case !p.Ready && p.RequestedBy != "":
		return "being created for " + p.RequestedBy
	case !p.Ready:
		return "not ready"
	case p.RequestedBy != "":
		return p.RequestedBy
	}
	return "free"
}

// lines draw one GPU's instances: its units, a line for each instance, and what it waits for.
func (m *MIG) lines(wide bool) []string {
	var rows [][]string
	for i, p := range m.Instances {
		row := []string{"  " + m.key(i), clean(p.Profile), fmt.Sprintf("at %d", p.Start), clean(p.state())}
		if wide {
			row = append(row, or(p.UUID))
		}
		rows = append(rows, row)
	}
	how := "created on demand"
	switch {
	case !m.Enabled:
		how = "not in MIG mode"
	case m.LayoutFromPool:
		how = "fixed layout"
	}
	out := []string{"  " + m.draw() + "  " + how}
	if m.MemorySlices == 0 && len(m.Instances) == 0 { // it does not support MIG
		out = []string{"  " + how}
	}
	out = append(out, aligning(rows)...)
	if m.SwitchableTo != "" {
		out = append(out, "  "+m.turns())
	}
	if m.Error != "" {
		out = append(out, "  in trouble: "+clean(m.Error))
	}
	if m.PendingReason != "" {
		out = append(out, "  not as the pool says: "+clean(m.PendingReason))
	}
	return out
}

// turns says what becomes of a GPU whose mode is demand's to change.
func (m *MIG) turns() string {
	to := "switches to MIG mode"
	if m.SwitchableTo != "mig" {
		to = "switches back from MIG mode"
	}
	switch {
	case m.ModeSwitchFor != "":
		return to + " now, for " + clean(m.ModeSwitchFor)
	case m.ModeSwitchBlockedBy != "":
		return to + " with demand, but not now: it " + clean(m.ModeSwitchBlockedBy)
	}
	return to + " with demand"
}

// Slices draws the MIG instances of the GPUs that support MIG.
func Slices(s Status, o Options) string {
	var b strings.Builder
	for _, g := range s.GPUs {
		if g.MIGState == nil {
			continue
		}
		fmt.Fprintf(&b, "GPU %d  %s\n", g.Index, or(g.Model))
		for _, l := range g.MIGState.lines(o.Wide) {
			b.WriteString(l + "\n")
		}
	}
	if b.Len() == 0 {
		return "No GPU of this machine supports MIG.\n"
	}
	return b.String()
}

// cutTable is Slices of the GPUs in MIG mode alone; empty where there are none.
func cutTable(s Status, o Options) string {
	var cut Status
	for _, g := range s.GPUs {
		if g.MIGState != nil && g.MIGState.Enabled {
			cut.GPUs = append(cut.GPUs, g)
		}
	}
	if len(cut.GPUs) == 0 {
		return ""
	}
	return "\n" + Slices(cut, o)
}
