// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/api/gpunode"
)

const (
	defaultWidth = 100
	minWidth     = 40
	freeCell     = "·"
	reservedCell = "╳"
	lentCell     = "~"
	// keys name the shares of one GPU, in its bar and its legend.
	keys = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// grantShare is one grant's share of one GPU.
type grantShare struct {
	grant Grant
	part  Share
	key   string
	style style
	shade string
}

// Bars renders s for a terminal: each GPU as a bar over its memory, a segment per grant, and a legend below. No line is
// wider than o.Width (at least 40).
func Bars(s Status, o Options) string {
	width := o.Width
	if width == 0 {
		width = defaultWidth
	}
	width = max(width, minWidth)
	lines := summary(s)
	for _, g := range s.GPUs {
		lines = append(lines, nil)
		lines = append(lines, gpuLines(s, g, o, width)...)
	}
	if lost := strays(s); len(lost) > 0 {
		lines = append(lines, nil, line{{red, "on GPUs that the node does not see"}})
		lines = append(lines, legend(lost, o)...)
	}
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.render(width, o.Color) + "\n")
	}
	return b.String()
}

// gpuLines are title, bar and legend of one GPU.
func gpuLines(s Status, g GPU, o Options, width int) []line {
	shares := sharesOf(s, g.UUID)
	lines := []line{title(g)}
	if o.Wide {
		lines = append(lines, line{{dim, fmt.Sprintf("  %s  pci %s  numa %d", or(g.UUID), or(g.PCI), g.NUMA)}})
		for _, b := range g.Backends {
			lines = append(lines, line{{dim, "  " + clean(b.String())}})
		}
	}
	lines = append(append(lines, bar(g, shares, o, width)), legend(shares, o)...)
	if g.MIGState != nil && g.MIGState.Enabled {
		for _, l := range g.MIGState.lines(o.Wide) {
			lines = append(lines, text(l))
		}
	}
	return lines
}

func title(g GPU) line {
	l := line{{bold, "GPU " + strconv.Itoa(int(g.Index))}, {plainStyle, "  " + or(g.Model) + "  "}}
	switch g.Health {
	case "healthy":
		l = l.add(green, "● healthy")
	case "suspect", "unknown":
		l = l.add(yellow, "▲ "+clean(g.Health))
	default:
		l = l.add(red, "✖ "+clean(g.Health))
	}
	if g.HealthReason != "" {
		l = l.add(plainStyle, " ("+clean(g.HealthReason)+")")
	}
	if g.MIG {
		l = l.add(plainStyle, "  MIG mode")
	}
	return l.add(plainStyle, fmt.Sprintf("  granted %s/%s  used %s  compute %s  util %s",
		g.granted(), g.allocatable(),
		sizeOr(g.UsedBytes),
		ofPercent(int(g.GrantedPercent), int(g.ComputeOvercommit)), utilization(g.Utilization)))
}

// bar draws the GPU's whole memory: shares, their burst memory, free memory, and the driver's part.
func bar(g GPU, shares []grantShare, o Options, width int) line {
	var amounts []uint64
	left := g.usable()
	for _, p := range shares {
		// A GPU may have shrunk since it was granted; the bar then shows what there is.
		a := min(p.part.MemoryBytes, left)
		amounts, left = append(amounts, a), left-a
	}
	lent := min(g.BurstBytes, left)
	amounts = append(amounts, lent, left-lent, min(valueOf(g.ReservedBytes), valueOf(g.CapacityBytes)))
	cells := apportion(amounts, width-4)
	l := text("  ▕")
	for i, p := range shares {
		l = append(l, p.draw(cells[i], o.Color)...)
	}
	n := len(shares)
	l = l.add(dim, strings.Repeat(lentCell, cells[n]))
	l = l.add(dim, strings.Repeat(freeCell, cells[n+1]))
	l = l.add(dim, strings.Repeat(reservedCell, cells[n+2]))
	return l.add(plainStyle, "▏")
}

// draw is the share in n cells, its key first. With colour the used part is solid and the rest is light; without, the
// shade tells neighbours apart.
func (p grantShare) draw(n int, color bool) line {
	if n == 0 {
		return nil
	}
	if !color {
		return line{{plainStyle, p.key + strings.Repeat(p.shade, n-1)}}
	}
	solid := 0
	if p.part.UsedBytes != nil && p.part.MemoryBytes > 0 {
		used := math.Min(float64(*p.part.UsedBytes)/float64(p.part.MemoryBytes), 1)
		solid = int(used * float64(n-1))
	}
	return line{{p.style + ";7", p.key}, {p.style, strings.Repeat("█", solid) + strings.Repeat("░", n-1-solid)}}
}

// legend explains shares, one line each, in columns.
func legend(shares []grantShare, o Options) []line {
	rows := make([][]string, len(shares))
	for i, p := range shares {
		rows[i] = []string{
			clean(p.grant.Label()), sizeOr(p.part.UsedBytes) + " / " + guaranteed(p.part.MemoryBytes,
				p.part.BurstBytes, p.part.Whole),
			meter(p.part.UsedBytes, p.part.MemoryBytes+p.part.BurstBytes, 8), percent(p.part.Percent),
			clean(p.grant.held()),
			plural(len(p.grant.PIDs), "pid"), o.user(p.grant),
		}
		if p.grant.shownState() != gpunode.StateActive {
			rows[i] = append(rows[i], clean(p.grant.shownState()))
		}
		if o.Wide {
			rows[i] = append(rows[i], or(p.grant.Cgroup))
		}
	}
	columns := widths(rows)
	lines := make([]line, len(shares))
	for i, p := range shares {
		l := text("  ").add(p.style, p.key+" ")
		for j, c := range rows[i] {
			st := plainStyle
			if j == 2 {
				l, st = l.add(plainStyle, "▕"), p.style
			}
			l = l.add(st, pad(c, columns[j]))
			if j == 2 {
				l = l.add(plainStyle, "▏")
			}
			l = l.add(plainStyle, "  ")
		}
		lines[i] = l
	}
	return lines
}

func widths(rows [][]string) []int {
	var out []int
	for _, r := range rows {
		for j, c := range r {
			if j == len(out) {
				out = append(out, 0)
			}
			out[j] = max(out[j], len([]rune(c)))
		}
	}
	return out
}

// sharesOf are the shares on one GPU, with keys and styles by their order.
func sharesOf(s Status, uuid string) []grantShare {
	var out []grantShare
	for _, g := range s.Grants {
		for _, f := range g.Shares {
			if f.GPU == uuid {
				out = append(out, grantShare{grant: g, part: f})
			}
		}
	}
	return dressed(out)
}

// strays are the shares on GPUs that are not in the inventory.
func strays(s Status) []grantShare {
	var out []grantShare
	for _, g := range s.Grants {
		for _, f := range g.Shares {
			if !slices.ContainsFunc(s.GPUs, func(gpu GPU) bool { return gpu.UUID == f.GPU }) {
				out = append(out, grantShare{grant: g, part: f})
			}
		}
	}
	return dressed(out)
}

func dressed(shares []grantShare) []grantShare {
	palette := []style{"36", "35", "34", "33", "32", "96", "95", "94", "93", "92"}
	shades := []string{"█", "▓", "▒"}
	for i := range shares {
		shares[i].key = "+"
		if i < len(keys) {
			shares[i].key = keys[i : i+1]
		}
		shares[i].style, shares[i].shade = palette[i%len(palette)], shades[i%len(shades)]
	}
	return shares
}

// apportion divides width cells among amounts in proportion. The cells add up to width, and every amount above zero has
// a cell if there are enough. The sum of amounts fits in 64 bits. The result is deterministic: on a tie, the first gets
// the cell.
func apportion(amounts []uint64, width int) []int {
	cells := make([]int, len(amounts))
	var total uint64
	for _, a := range amounts {
		total += a
	}
	if total == 0 || width <= 0 {
		return cells
	}
	given := 0
	for i, a := range amounts {
		hi, lo := bits.Mul64(a, uint64(width))
		q, _ := bits.Div64(hi, lo, total) // a <= total, so the quotient is at most width
		cells[i] = int(q)                 //nolint:gosec // at most width
		if cells[i] == 0 && a > 0 {
			cells[i] = 1
		}
		given += cells[i]
	}
	for ; given > width; given-- {
		cells[richest(cells)]--
	}
	for ; given < width; given++ {
		cells[neediest(cells, amounts, total, width)]++
	}
	return cells
}

// richest is the index of the most cells, the last of equals.
func richest(cells []int) int {
	best := 0
	for i, c := range cells {
		if c >= cells[best] {
			best = i
		}
	}
	return best
}

// neediest is the index of the amount whose exact share is furthest above its cells, the first of equals.
func neediest(cells []int, amounts []uint64, total uint64, width int) int {
	best, most := 0, -float64(width)
	for i, a := range amounts {
		if a == 0 {
			continue
		}
		if lack := float64(a)/float64(total)*float64(width) - float64(cells[i]); lack > most {
			best, most = i, lack
		}
	}
	return best
}

// meter is a small bar of n cells that is used/total full, in eighths of a cell. Something used shows at
// least an eighth, and only all of it shows as full.
func meter(used *uint64, total uint64, n int) string {
	if used == nil || total == 0 {
		return strings.Repeat("?", n)
	}
	u := min(*used, total)
	hi, lo := bits.Mul64(u, uint64(n)*8) //nolint:gosec // a handful of cells
	q, _ := bits.Div64(hi, lo, total)
	eighths := int(q) //nolint:gosec // at most 8n
	if eighths == 0 && u > 0 {
		eighths = 1
	}
	partial := []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}[eighths%8]
	return pad(strings.Repeat("█", eighths/8)+partial, n)
}
