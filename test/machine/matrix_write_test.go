// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// cell is what became of one attempt on one backend.
type cell struct {
	verdict verdict
	// over is how many bytes it came above its cap.
	over uint64
	// by is for which reasons the watch killed.
	by    string
	delay time.Duration
}

// matrix has the cells by the names of backend and attempt.
type matrix map[string]map[string]cell

// firstName is the name of the cell of first, which is no other's.
const firstName = "first"

// document is docs/reference/enforcement.md.
func document(all []backend, got matrix) string {
	var b strings.Builder
	b.WriteString(introduction)
	for i, be := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "`%s` (level %s) on %s", be.name, be.level, be.driver)
	}
	b.WriteString(". All pools but the first also list `reactive`, with `onOverCap: kill`.\n\n## Families of " +
		"memory\n\n")
	tableHead(&b, "what", all)
	row := func(name, text string) {
		b.WriteString("| " + text + " |")
		for _, be := range all {
			b.WriteString(" " + got[be.name][name].String() + " |")
		}
		b.WriteString("\n")
	}
	row(firstName, "`gpuload --api linear`"+first().note)
	for _, f := range families() {
		row(f.name(), "`gpuload --api "+f.api+"`"+f.note)
	}
	b.WriteString("\n")
	why := map[string][]string{}
	for _, f := range families() {
		for _, be := range all {
			if w := f.past[be.name]; w != "" {
				k := "`" + be.name + "`: " + w
				why[k] = append(why[k], f.name())
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(why)) {
		fmt.Fprintf(&b, "- %s: `%s`.\n", k, strings.Join(why[k], ", "))
	}
	fmt.Fprintf(&b, "\n## Attacks, by every family\n\nEach attack uses all %d families. A cell has the result of "+
		"`linear`, and then the families with other results.\n\n", len(families()))
	tableHead(&b, "what", all)
	for _, k := range attacks() {
		text := k.what
		if k.fine {
			text += " (not by `checkpoint`, which starts a process for each allocation)"
		}
		if k.only != "" {
			text += " (by `" + k.only + "` alone)"
		}
		b.WriteString("| " + text + " |")
		for _, be := range all {
			b.WriteString(" " + grouped(k, got[be.name]) + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString(found(all, got))
	b.WriteString(limits)
	return b.String()
}

func tableHead(b *strings.Builder, what string, all []backend) {
	b.WriteString("| " + what + " |")
	for _, be := range all {
		b.WriteString(" " + be.name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(all)) + "\n")
}

func (c cell) String() string { return c.kind() + c.amount() }

// kind is what became of it, and why.
func (c cell) kind() string {
	if c.verdict != ended {
		return string(c.verdict)
	}
	reasons := map[string]string{"over_cap": "over its cap", "escaped": "without its MPS",
		"unmanaged": "without a grant"}
	var why []string
	for reason := range strings.SplitSeq(c.by, ", ") {
		why = append(why, reasons[reason])
	}
	return "ended: " + strings.Join(why, " and ")
}

// amount is how far above the cap it came, in steps that hardly change from run to run.
func (c cell) amount() string {
	const tenth = gib / 10
	switch {
	case c.over == 0:
		return ""
	case c.over < gib/2:
		return fmt.Sprintf(" (+%d MiB)", (c.over+mib-1)/mib)
	}
	return fmt.Sprintf(" (+%.1f GiB)", float64((c.over+tenth-1)/tenth)/10)
}

// grouped is the cell of an attack by all families: what became of the first, and what else became of which.
func grouped(k attack, got map[string]cell) string {
	type group struct {
		kind  string
		apis  []string
		worst cell
	}
	var groups []group
	for _, f := range families() {
		a := attempt{f, k}
		if a.leftOut() {
			continue
		}
		c := got[a.name()]
		i := slices.IndexFunc(groups, func(g group) bool { return g.kind == c.kind() })
		if i < 0 {
			i, groups = len(groups), append(groups, group{kind: c.kind(), worst: c})
		}
		groups[i].apis = append(groups[i].apis, f.api)
		if c.over > groups[i].worst.over {
			groups[i].worst = c
		}
	}
	var parts []string
	for i, g := range groups {
		text := g.kind + g.worst.amount()
		if i > 0 {
			text += ": `" + strings.Join(g.apis, ", ") + "`"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ". ")
}

// found is how soon the watch found what was over its cap.
func found(all []backend, got matrix) string {
	var b strings.Builder
	b.WriteString(`
## Detection time

The time for which a grant was over its cap at most: the time since it was last seen within its cap
(` + "`kerf_reactive_detection_seconds`" + `). Kerf kills a process after the second sample.

| backend | found | median | slowest |
|---|---|---|---|
`)
	for _, be := range all {
		var delays []time.Duration
		for _, c := range got[be.name] {
			if c.delay > 0 {
				delays = append(delays, c.delay)
			}
		}
		if len(delays) == 0 {
			continue
		}
		slices.Sort(delays)
		fmt.Fprintf(&b, "| %s | %d | %d ms | %d ms |\n", be.name, len(delays), delays[len(delays)/2].Milliseconds(),
			delays[len(delays)-1].Milliseconds())
	}
	return b.String()
}
