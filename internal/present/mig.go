// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"fmt"
	"slices"
	"strings"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
)

// MIG is how a GPU is cut into MIG instances. Units are its placement units. Trouble is why nothing is given of it, and
// Waits why it is not as the pool says. TurnsTo is what it becomes with demand ("mig", or "shared"), empty where demand does
// not change its mode; TurnsFor is who it changes for now, and TurnStays what keeps it as it is for now.
type MIG struct {
	On        bool       `json:"on"`
	Fixed     bool       `json:"fixed"`
	Units     int32      `json:"units"`
	Profiles  []string   `json:"profiles"`
	Pieces    []MIGPiece `json:"pieces"`
	Trouble   string     `json:"trouble"`
	Waits     string     `json:"waits"`
	TurnsTo   string     `json:"turns_to"`
	TurnsFor  string     `json:"turns_for"`
	TurnStays string     `json:"turn_stays"`
}

// MIGPiece is a MIG instance, from Start over Size units. One that is not Ours was made by others; one that is not Ready
// is being cut. Grant has it, if one does, and Holder is whose that is.
type MIGPiece struct {
	Profile string `json:"profile"`
	Start   int32  `json:"start"`
	Size    int32  `json:"size"`
	Ours    bool   `json:"ours"`
	Ready   bool   `json:"ready"`
	UUID    string `json:"uuid"`
	Grant   string `json:"grant"`
	Holder  string `json:"holder"`
}

// fromMIG is nil for a GPU that cannot be cut, or of which nothing is known.
func fromMIG(m *nodev1.MIG) *MIG {
	if m == nil || !m.GetAble() && m.GetTrouble() == "" && m.GetWaits() == "" {
		return nil
	}
	out := &MIG{
		On: m.GetOn(), Fixed: m.GetFixed(), Units: m.GetUnits(), Profiles: list(m.GetProfiles()), Pieces: []MIGPiece{},
		Trouble: m.GetTrouble(), Waits: m.GetWaits(),
		TurnsTo: m.GetTurnsTo(), TurnsFor: m.GetTurnsFor(), TurnStays: m.GetTurnStays(),
	}
	out.Pieces = append(out.Pieces, fromPieces(m.GetPieces())...)
	return out
}

func fromPieces(pieces []*nodev1.MIGPiece) []MIGPiece {
	var out []MIGPiece
	for _, p := range pieces {
		out = append(out, MIGPiece{
			Profile: p.GetProfile(), Start: p.GetStart(), Size: p.GetSize(), Ours: p.GetOurs(), Ready: p.GetReady(),
			UUID: p.GetUuid(), Grant: p.GetGrant(), Holder: p.GetHolder(),
		})
	}
	return out
}

// The cells of a unit that no piece has, and of one whose piece Kerf did not make.
const (
	freeUnit    = "."
	foreignUnit = "#"
)

// maxUnits bounds what is drawn; no GPU has as many.
const maxUnits = 64

// draw is the GPU's units with the pieces' keys on them: "[..abcccc]".
func (m *MIG) draw() string {
	cells := slices.Repeat([]string{freeUnit}, int(min(max(m.Units, 0), maxUnits)))
	for i := range m.Pieces {
		m.mark(cells, i)
	}
	return "[" + strings.Join(cells, "") + "]"
}

// mark puts the key of a piece on its units.
func (m *MIG) mark(cells []string, i int) {
	p := m.Pieces[i]
	for u := max(p.Start, 0); u < min(p.Start+p.Size, int32(len(cells))); u++ { //nolint:gosec // at most maxUnits
		cells[u] = m.key(i)
	}
}

func (m *MIG) key(i int) string {
	switch {
	case !m.Pieces[i].Ours:
		return foreignUnit
	case i < len(keys):
		return keys[i : i+1]
	}
	return "+"
}

func (p MIGPiece) state() string {
	switch {
	case !p.Ours:
		return "not made by Kerf"
	case !p.Ready && p.Holder != "":
		return "being cut for " + p.Holder
	case !p.Ready:
		return "not ready"
	case p.Holder != "":
		return p.Holder
	}
	return "free"
}

// lines draw one GPU's instances: its units, a line for each piece, and what it waits for.
func (m *MIG) lines(wide bool) []string {
	var rows [][]string
	for i, p := range m.Pieces {
		row := []string{"  " + m.key(i), clean(p.Profile), fmt.Sprintf("at %d", p.Start), clean(p.state())}
		if wide {
			row = append(row, or(p.UUID))
		}
		rows = append(rows, row)
	}
	how := "cut on demand"
	switch {
	case !m.On:
		how = "not in MIG mode"
	case m.Fixed:
		how = "fixed layout"
	}
	out := []string{"  " + m.draw() + "  " + how}
	if m.Units == 0 && len(m.Pieces) == 0 { // it cannot be cut
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
	to := "turns to MIG mode"
	if m.TurnsTo != "mig" {
		to = "turns back from MIG mode"
	}
	switch {
	case m.TurnsFor != "":
		return to + " now, for " + clean(m.TurnsFor)
	case m.TurnStays != "":
		return to + " with demand, but not now: it " + clean(m.TurnStays)
	}
	return to + " with demand"
}

// Slices draws how the GPUs are cut into MIG instances, those that can be.
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
		return "No GPU of this machine can be cut into MIG instances.\n"
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
