// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package defrag

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// text is a plan for people.
func (p plan) text() string {
	var b strings.Builder
	if len(p.Moves) == 0 {
		fmt.Fprintf(&b, "No moves let a pending pod fit. Pending pods that do not fit: %d.\n", len(p.Left))
	} else {
		fmt.Fprintf(&b, "%d moves give pending pods %.4g GPUs at a cost of %d s (%.4g s for each GPU).\n\n",
			len(p.Moves),
			p.GPUs, p.Cost, p.CostPerGPU)
		p.moves(&b)
		fmt.Fprintf(&b, "\nFreed GPUs: %s\n", orNone(p.FreedGPUs))
	}
	if len(p.Fits) > 0 {
		b.WriteString("Pods that fit:\n")
	}
	for _, f := range p.Fits {
		when := fmt.Sprintf("after step %d", f.StepIndex)
		if f.StepIndex == 0 {
			when = "without a move"
		}
		fmt.Fprintf(&b, "  %s on %s, %s\n", f.Pod, f.To, when)
	}
	if len(p.Left) > 0 {
		fmt.Fprintf(&b, "Pods that still do not fit: %s\n", strings.Join(p.Left, ", "))
	}
	if p.Partial {
		b.WriteString("The search ended at its limit. Other moves can help, and pods listed as not fitting can fit.\n")
	}
	for _, why := range slices.Sorted(maps.Keys(p.Staying)) {
		fmt.Fprintf(&b, "Pods that stay (%s): %d\n", why, p.Staying[why])
	}
	return b.String()
}

func (p plan) moves(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "STEP\tPOD\tFROM\tTO\tCOST\tLOST TIME\tBUDGETS\tPRIORITY")
	for _, m := range p.Moves {
		_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d s\t%d s\t%d\t%d\n", m.StepIndex, m.Pod, m.From, m.To, m.Cost,
			m.LostSecs,
			m.Budgets, m.Priority)
	}
	_ = w.Flush()
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
