// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Options say how text is rendered.
type Options struct {
	// Width is the terminal's, in cells; 0 means no limit for tables and 100 for bars.
	Width int
	// Color allows colours.
	Color bool
	// Wide adds what is too long for most terminals: UUIDs, PCI addresses, cgroups.
	Wide bool
	// User names a user id; nil shows the number.
	User func(uid uint32) string
}

func (o Options) user(g Grant) string {
	if g.PodName != "" {
		return "pod"
	}
	if g.PodUID != "" {
		return "pod:" + clean(g.PodUID)
	}
	if o.User != nil {
		if name := o.User(g.UserID); name != "" {
			return clean(name)
		}
	}
	return strconv.FormatUint(uint64(g.UserID), 10)
}

// Table renders s as one line per GPU and per grant, as text for grep and awk. Columns are two or more spaces apart,
// and the same whatever the values.
func Table(s Status, o Options) string {
	var b strings.Builder
	for _, l := range summary(s) {
		b.WriteString(l.plain() + "\n")
	}
	b.WriteString("\n" + gpuTable(s, o) + "\n" + grantTable(s, o) + cutTable(s, o))
	return b.String()
}

func gpuTable(s Status, o Options) string {
	head := []string{"GPU", "HEALTH", "USED", "GRANTED", "ALLOCATABLE", "PERCENT", "UTIL", "LEVELS", "MODEL"}
	if o.Wide {
		head = append(head, "UUID", "PCI", "NUMA", "BACKENDS", "REASON", "UNSUPPORTED")
	}
	rows := [][]string{head}
	for _, g := range s.GPUs {
		row := []string{
			strconv.Itoa(int(g.Index)), or(g.Health), sizeOr(g.UsedBytes),
			g.granted(), g.allocatable(),
			ofPercent(int(g.GrantedPercent), int(g.ComputeOvercommit)), utilization(g.Utilization),
			or(strings.Join(g.Levels, ",")), or(g.Model),
		}
		if o.Wide {
			row = append(row, or(g.UUID), or(g.PCI), strconv.Itoa(int(g.NUMA)), or(g.works()), or(g.HealthReason),
				or(strings.Join(g.whyNot(), ". ")))
		}
		rows = append(rows, row)
	}
	return aligned(rows)
}

func grantTable(s Status, o Options) string {
	index := map[string]int32{}
	for _, g := range s.GPUs {
		index[g.UUID] = g.Index
	}
	head := []string{"GRANT", "STATE", "GPUS", "USED", "MEMORY", "PERCENT", "LEVEL", "BACKEND", "PIDS", "HEALTH",
		"USER"}
	if o.Wide {
		head = append(head, "ID", "UUIDS", "CGROUP", "PROFILE", "REASON", "COMPUTE", "GPU-TIME", "THROTTLED",
			"OVER-BUDGET", "CLAIM")
	}
	rows := [][]string{head}
	for _, g := range s.Grants {
		row := []string{
			or(g.Label()), or(g.shownState()), or(indexes(g.GPUs, index)), sizeOr(g.UsedBytes),
			guaranteed(g.MemoryBytes, g.burst(), g.Whole),
			percent(g.Percent), or(g.Level), or(g.Backend), strconv.Itoa(len(g.PIDs)), or(g.Health), o.user(g),
		}
		if o.Wide {
			row = append(row, or(g.ID), or(strings.Join(g.GPUs, ",")), or(g.Cgroup), or(g.Profile), or(g.LevelReason),
				or(g.Compute.String()))
			row = append(append(row, g.times()...), or(strings.Join(g.Claims, ",")))
		}
		rows = append(rows, row)
	}
	return aligned(rows)
}

// indexes are the numbers of GPUs by UUID; one that the node no longer has shows as its UUID.
func indexes(uuids []string, index map[string]int32) string {
	var out []string
	for _, id := range uuids {
		if i, ok := index[id]; ok {
			out = append(out, strconv.Itoa(int(i)))
		} else {
			out = append(out, id)
		}
	}
	return strings.Join(out, ",")
}

// aligned lays rows out in columns, without blanks at the end of a line.
func aligned(rows [][]string) string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	_ = w.Flush() // into memory: cannot fail
	lines := strings.Split(b.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

// style is an SGR parameter list; empty is the terminal's own.
type style string

const (
	plainStyle style = ""
	bold       style = "1"
	dim        style = "2"
	red        style = "31"
	green      style = "32"
	yellow     style = "33"
)

// span is a stretch of text in one style. Its characters are one cell wide each.
type span struct {
	style style
	text  string
}

// line is one line of a screen.
type line []span

func text(s string) line { return line{{plainStyle, s}} }

func (l line) add(st style, s string) line { return append(l, span{st, s}) }

// width is the number of cells.
func (l line) width() int {
	n := 0
	for _, s := range l {
		n += utf8.RuneCountInString(s.text)
	}
	return n
}

// plain is the text without styles.
func (l line) plain() string { return l.render(0, false) }

// render writes the line in at most width cells (0: no limit); what does not fit ends in an ellipsis.
func (l line) render(width int, color bool) string {
	var b strings.Builder
	cut := width > 0 && l.width() > width
	left := width - 1 // the ellipsis needs a cell
	for _, s := range l {
		t := s.text
		if cut {
			t = head(t, left)
			left -= utf8.RuneCountInString(t)
		}
		if t == "" {
			continue
		}
		if color && s.style != plainStyle {
			b.WriteString("\x1b[" + string(s.style) + "m" + t + "\x1b[0m")
		} else {
			b.WriteString(t)
		}
	}
	if cut {
		b.WriteString("…")
	}
	if color {
		return b.String()
	}
	return strings.TrimRight(b.String(), " ")
}

// head is the first n characters of s.
func head(s string, n int) string {
	for i := range s {
		if n <= 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// pad fills s with blanks to n cells.
func pad(s string, n int) string {
	if d := n - utf8.RuneCountInString(s); d > 0 {
		return s + strings.Repeat(" ", d)
	}
	return s
}
