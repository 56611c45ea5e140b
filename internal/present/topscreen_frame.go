// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"fmt"
	"strings"
	"unicode/utf8"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
)

// selectedStyle is the selected line: reverse video.
const selectedStyle style = "7"

// topHelp are the keys of a TopScreen. The frame of 40 by 12 cells has room for them.
func topHelp() []string {
	return []string{
		"up down j k    select a line",
		"pgup pgdn      scroll a page",
		"home end g G   first, last line",
		"enter right    node, GPU, its grants",
		"esc left       go back",
		"/              filter the lines",
		"< > r          order, reverse",
		"v              change the list",
		"w q            add IDs, quit",
		"* ~            MIG or whole, GPU part",
	}
}

// Frame draws the screen: as many lines as the terminal has, none wider than it.
func (s TopScreen) Frame() string {
	lines := s.top()
	if s.help {
		for _, l := range topHelp() {
			lines = append(lines, text(l))
		}
	} else {
		lines = append(lines, s.table()...)
	}
	lines = lines[:min(len(lines), s.height-1)]
	for len(lines) < s.height-1 {
		lines = append(lines, nil)
	}
	lines = append(lines, s.foot())
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = l.render(s.width, s.color)
	}
	return strings.Join(out, "\n")
}

// top are the lines above the list: where the user is, what is not known, and the GPUs in question.
func (s TopScreen) top() []line {
	title := "all"
	if s.at.node != "" && len(s.nodes) > 1 {
		title = clean(s.at.node)
	}
	if s.at.gpu != "" {
		title = strings.TrimPrefix(title+" > ", "all > ") + "GPU " + indexOf(s.nodes, s.at)
	}
	what := map[string]string{"node": "nodes", "gpu": "GPUs", "owner": "grants", "pod": "pods"}[s.view.By]
	first := line{{bold, title}, {plainStyle, ": " + what + " by " + s.view.Order}}
	if s.view.Reverse {
		first = first.add(plainStyle, ", reversed")
	}
	if s.filter != "" && !s.typing {
		first = first.add(plainStyle, ", with ").add(bold, clean(s.filter))
	}
	lines := []line{first}
	if n := len(s.notes); n > 0 {
		note := clean(s.notes[0])
		if n > 1 {
			note = fmt.Sprintf("(1 of %d) %s", n, note)
		}
		lines = append(lines, line{{yellow, note}})
	}
	if s.help {
		return lines
	}
	if gpus := s.summary(); len(gpus) > 0 {
		lines = append(append(lines, gpus...), nil)
	}
	return lines
}

// indexOf is the number of a GPU on its node.
func indexOf(nodes []TopNode, at topScope) string {
	for _, n := range nodes {
		for _, g := range n.Sample.GetGpus() {
			if n.Name == at.node && gpuID(g) == at.gpu {
				return fmt.Sprint(g.GetIndex())
			}
		}
	}
	return clean(at.gpu)
}

// summary is a table of the GPUs that the listed owners are on, if it takes at most a third of the screen.
func (s TopScreen) summary() []line {
	if s.view.By != "owner" && s.view.By != "pod" || s.at.node == "" && len(s.nodes) > 1 {
		return nil
	}
	var gpus []*telemetryapi.GPU
	for _, n := range s.nodes {
		if s.at.node == "" || n.Name == s.at.node {
			gpus = append(gpus, s.gpusOf(n)...)
		}
	}
	if len(gpus) == 0 || len(gpus) > s.height/3-1 {
		return nil
	}
	rows := [][]string{gpuHead(false)}
	for _, g := range gpus {
		rows = append(rows, gpuCells(g, false))
	}
	widths := widthsOf(rows, s.width)
	var out []line
	for i, r := range rows {
		st := plainStyle
		if i == 0 {
			st = bold
		}
		out = append(out, line{{st, "  " + joined(r, widths)}})
	}
	return out
}

// rows is how many lines of the list the screen has room for.
func (s TopScreen) rows() int {
	s.help = false
	return s.height - len(s.top()) - 2 // the head of the table, and the foot
}

// table are the head and the lines of the list that are on the screen.
func (s TopScreen) table() []line {
	all := [][]string{headOf(s.view)}
	for _, l := range s.list {
		all = append(all, l.cells)
	}
	widths := widthsOf(all, s.width)
	out := []line{{{bold, "  " + joined(all[0], widths)}}}
	for i := s.first; i < min(len(s.list), s.first+s.rows()); i++ {
		l := s.list[i]
		row := joined(l.cells, widths)
		if i == s.cursor {
			out = append(out, line{{selectedStyle, pad("> "+row, s.width)}})
			continue
		}
		out = append(out, line{{l.style, "  " + row}})
	}
	return out
}

// widthsOf are the widths of the columns that fit on a screen, from the left. The second column, mostly a name, takes
// at most half of the screen, and leaves room for the third.
func widthsOf(rows [][]string, width int) []int {
	most := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			most[i] = max(most[i], utf8.RuneCountInString(c))
		}
	}
	if len(most) > 2 {
		most[1] = min(most[1], max(8, min(width/2, width-most[0]-most[2]-6)))
	}
	total := 0
	for i, w := range most {
		total += w + 2
		if i > 1 && total > width {
			return most[:i]
		}
	}
	return most
}

// joined are the cells of a row, each in its column.
func joined(cells []string, widths []int) string {
	var b strings.Builder
	for i, w := range widths {
		c := cells[i]
		if utf8.RuneCountInString(c) > w {
			c = head(c, w-1) + "…"
		}
		if b.WriteString(c); i < len(widths)-1 {
			b.WriteString(strings.Repeat(" ", w+2-utf8.RuneCountInString(c)))
		}
	}
	return b.String()
}

// foot is the last line: the filter while the user writes it, or which lines are shown, and the keys.
func (s TopScreen) foot() line {
	if s.typing {
		return line{{bold, "filter: "}, {plainStyle, clean(s.filter) + "_"}}
	}
	if s.help {
		return text("any key: back to the list")
	}
	where := "no lines"
	if len(s.list) > 0 {
		where = fmt.Sprintf("%d-%d of %d", s.first+1, min(len(s.list), s.first+s.rows()), len(s.list))
	}
	return text(where + "  ? keys  q quit  / filter  < > order  v list  enter open  esc back")
}
