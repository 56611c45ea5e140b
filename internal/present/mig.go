// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"fmt"
	"slices"
	"strings"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
)

// MIG is the MIG state of a GPU. Units are its memory slices. Trouble is why it gives nothing, and Waits why it is not
// as the pool requires. TurnsTo is the mode that demand switches it to ("mig", or "shared"), empty if demand does not
// switch it. TurnsFor is the request that it switches for now, and TurnStays what keeps its mode for now.
type MIG struct {
	On        bool          `json:"on"`
	Fixed     bool          `json:"fixed"`
	Units     int32         `json:"units"`
	Profiles  []string      `json:"profiles"`
	Instances []MIGInstance `json:"pieces"`
	Trouble   string        `json:"trouble"`
	Waits     string        `json:"waits"`
	TurnsTo   string        `json:"turns_to"`
	TurnsFor  string        `json:"turns_for"`
	TurnStays string        `json:"turn_stays"`
}

// MIGInstance has Size units from Start on. If it is not Ours, others made it. If it is not Ready, it is being created.
// Grant has it, if one does, and Holder is the owner.
type MIGInstance struct {
	Profile string `json:"profile"`
	Start   int32  `json:"start"`
	Size    int32  `json:"size"`
	Ours    bool   `json:"ours"`
	Ready   bool   `json:"ready"`
	UUID    string `json:"uuid"`
	Grant   string `json:"grant"`
	Holder  string `json:"holder"`
}

// fromMIG is nil for a GPU without MIG support, or if nothing is known.
func fromMIG(m *nodev1.MIG) *MIG {
	if m == nil || !m.GetAble() && m.GetTrouble() == "" && m.GetWaits() == "" {
		return nil
	}
	out := &MIG{
		On: m.GetOn(), Fixed: m.GetFixed(), Units: m.GetUnits(), Profiles: list(m.GetProfiles()),
		Instances: []MIGInstance{},
		Trouble:   m.GetTrouble(), Waits: m.GetWaits(),
		TurnsTo: m.GetTurnsTo(), TurnsFor: m.GetTurnsFor(), TurnStays: m.GetTurnStays(),
	}
	out.Instances = append(out.Instances, fromPieces(m.GetPieces())...)
	return out
}

func fromPieces(pieces []*nodev1.MIGInstance) []MIGInstance {
	var out []MIGInstance
	for _, p := range pieces {
		out = append(out, MIGInstance{
			Profile: p.GetProfile(), Start: p.GetStart(), Size: p.GetSize(), Ours: p.GetOurs(), Ready: p.GetReady(),
			UUID: p.GetUuid(), Grant: p.GetGrant(), Holder: p.GetHolder(),
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
	cells := slices.Repeat([]string{freeUnit}, int(min(max(m.Units, 0), maxUnits)))
	for i := range m.Instances {
		m.mark(cells, i)
	}
	return "[" + strings.Join(cells, "") + "]"
}

// mark puts the key of an instance on its units.
func (m *MIG) mark(cells []string, i int) {
	p := m.Instances[i]
	for u := max(p.Start, 0); u < min(p.Start+p.Size, int32(len(cells))); u++ { //nolint:gosec // at most maxUnits
		cells[u] = m.key(i)
	}
}

func (m *MIG) key(i int) string {
	switch {
	case !m.Instances[i].Ours:
		return foreignUnit
	case i < len(keys):
		return keys[i : i+1]
	}
	return "+"
}

func (p MIGInstance) state() string {
	switch {
	case !p.Ours:
		return "not made by Kerf"
	case !p.Ready && p.Holder != "":
		return "being created for " + p.Holder
	case !p.Ready:
		return "not ready"
	case p.Holder != "":
		return p.Holder
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
	case !m.On:
		how = "not in MIG mode"
	case m.Fixed:
		how = "fixed layout"
	}
	out := []string{"  " + m.draw() + "  " + how}
	if m.Units == 0 && len(m.Instances) == 0 { // it does not support MIG
		out = []string{"  " + how}
	}
	out = append(out, aligning(rows)...)
	if m.TurnsTo != "" {
		out = append(out, "  "+m.turns())
	}
	if m.Trouble != "" {
		out = append(out, "  in trouble: "+clean(m.Trouble))
	}
	if m.Waits != "" {
		out = append(out, "  not as the pool says: "+clean(m.Waits))
	}
	return out
}

// turns says what becomes of a GPU whose mode is demand's to change.
func (m *MIG) turns() string {
	to := "switches to MIG mode"
	if m.TurnsTo != "mig" {
		to = "switches back from MIG mode"
	}
	switch {
	case m.TurnsFor != "":
		return to + " now, for " + clean(m.TurnsFor)
	case m.TurnStays != "":
		return to + " with demand, but not now: it " + clean(m.TurnStays)
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
		if g.MIGState != nil && g.MIGState.On {
			cut.GPUs = append(cut.GPUs, g)
		}
	}
	if len(cut.GPUs) == 0 {
		return ""
	}
	return "\n" + Slices(cut, o)
}
