// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"fmt"
	"slices"
	"strings"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
)

// MIGPlans draws each GPU that has steps to do, or where something prevents them. It shows the slices with their
// grants before and after the steps, the steps, and the reason of what stays undone. If done is true, the steps were
// taken, and s is the status after them. Then it draws the slices once.
func MIGPlans(s Status, plans []*nodeapi.MIGPlan, done bool) string {
	var b strings.Builder
	for _, p := range plans {
		if len(p.GetSteps()) == 0 && p.GetPendingReason() == "" {
			continue
		}
		now := &MIG{MemorySlices: p.GetMemorySlices()}
		for _, g := range s.GPUs {
			if g.UUID == p.GetGpu() && g.MIGState != nil {
				now = g.MIGState
			}
		}
		fmt.Fprintf(&b, "GPU %d  %s\n", p.GetIndex(), clean(p.GetGpu()))
		for _, l := range now.planned(p, done) {
			b.WriteString("  " + l + "\n")
		}
		for _, step := range p.GetSteps() {
			if done {
				step = "done: " + step
			}
			fmt.Fprintf(&b, "  %s\n", clean(step))
		}
		if p.GetPendingReason() != "" {
			fmt.Fprintf(&b, "  left undone: %s\n", clean(p.GetPendingReason()))
		}
	}
	if b.Len() == 0 {
		return "Nothing is to be done.\n"
	}
	return b.String()
}

// MIGPlan is a plan for scripts: fields keep their names and meanings, and more may be added.
type MIGPlan struct {
	GPU   string `json:"gpu"`
	Index int32  `json:"index"`
	// Done is true for steps that were taken, and false for those that are left.
	Done  bool     `json:"done"`
	Steps []string `json:"steps"`
	// PendingReason says what the other steps wait for, empty if there are none.
	PendingReason string `json:"pendingReason"`
	// MemorySlices is the number of the GPU's memory slices. InstancesAfter are the instances after the steps.
	MemorySlices   int32         `json:"memorySlices"`
	InstancesAfter []MIGInstance `json:"instancesAfter"`
}

// MIGPlanned are the plans for scripts, of all GPUs.
func MIGPlanned(plans []*nodeapi.MIGPlan, done bool) []MIGPlan {
	out := []MIGPlan{}
	for _, p := range plans {
		out = append(out, MIGPlan{p.GetGpu(), p.GetIndex(), done, list(p.GetSteps()), p.GetPendingReason(),
			p.GetMemorySlices(), append([]MIGInstance{}, fromInstances(p.GetInstancesAfter())...)})
	}
	return out
}

// planned are the drawings of a plan, with a line for each instance: what becomes of it, and whose it is. An
// instance that stays has one letter in both.
func (m *MIG) planned(p *nodeapi.MIGPlan, done bool) []string {
	all := &MIG{MemorySlices: max(m.MemorySlices, p.GetMemorySlices()), Instances: slices.Clone(m.Instances)}
	now := all.draw()
	var rows [][]string
	row := func(i int, state string) {
		at := all.Instances[i]
		rows = append(rows, []string{all.key(i), clean(at.Profile), fmt.Sprintf("at %d", at.Start), clean(state)})
	}
	if all.MemorySlices == 0 && len(all.Instances) == 0 {
		return nil // it does not support MIG
	}
	if done || len(p.GetSteps()) == 0 {
		for i, in := range all.Instances {
			row(i, in.state())
		}
		return append([]string{"now   " + now}, aligning(rows)...)
	}
	after := fromInstances(p.GetInstancesAfter())
	same := func(in MIGInstance) func(MIGInstance) bool {
		return func(o MIGInstance) bool {
			return o.Profile == in.Profile && o.Start == in.Start && o.Managed == in.Managed
		}
	}
	for i, in := range all.Instances {
		if state := in.state(); slices.ContainsFunc(after, same(in)) {
			row(i, state)
		} else {
			row(i, state+", goes")
		}
	}
	cells := slices.Repeat([]string{freeUnit}, int(min(max(all.MemorySlices, 0), maxUnits)))
	for _, in := range after {
		i := slices.IndexFunc(all.Instances, same(in))
		if i < 0 {
			i = len(all.Instances)
			all.Instances = append(all.Instances, in)
			row(i, "is made")
		}
		all.mark(cells, i)
	}
	return append([]string{"now   " + now, "then  [" + strings.Join(cells, "") + "]"}, aligning(rows)...)
}

// aligning are rows as lines; none for no rows.
func aligning(rows [][]string) []string {
	if len(rows) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(aligned(rows), "\n"), "\n")
}
