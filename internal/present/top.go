// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	telemetryv1 "github.com/kerf-gpu/kerf/api/telemetry/v1"
	"github.com/kerf-gpu/kerf/sharing"
)

// TopOrders are the orders in which Top can put what uses the GPUs.
func TopOrders() []string { return []string{"gpu", "memory", "sm", "energy", "idle", "name"} }

// topRow is one owner on one GPU.
type topRow struct {
	gpu *telemetryv1.GPU
	use *telemetryv1.Use
}

// Top renders one sample: a line per GPU, and a line per owner on a GPU, in one of TopOrders. What is not known is "-",
// and a value that is known by less than its processes has a mark, which the last line explains.
func Top(s *telemetryv1.Sample, order string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "source %s, driver %s", or(s.GetSource()), or(s.GetDriverVersion()))
	if !s.GetAgentUp() {
		b.WriteString("; the agent is away: grants are as it told of them last")
	}
	if n := s.GetMissed(); n > 0 {
		fmt.Fprintf(&b, "; %d samples missed", n)
	}
	b.WriteString("\n\n" + topGPUs(s))
	rows := topRows(s, order)
	if len(rows) == 0 {
		return b.String()
	}
	b.WriteString("\n" + topUses(rows))
	if strings.ContainsAny(b.String(), "*~") {
		b.WriteString("\n* of a MIG instance or a whole GPU   ~ a part of the GPU's value\n")
	}
	return b.String()
}

func topGPUs(s *telemetryv1.Sample) string {
	rows := [][]string{{"GPU", "MEMORY", "OF", "SM", "POWER", "TEMP", "MODEL"}}
	for _, g := range s.GetGpus() {
		row := []string{strconv.Itoa(int(g.GetIndex())), sizeOr(g.MemoryUsedBytes), sizeOr(g.MemoryTotalBytes), unknown, unknown, unknown, or(g.GetModel())}
		if g.SmRatio != nil {
			row[3] = ratio(g.GetSmRatio())
		}
		if g.PowerWatts != nil {
			row[4] = fmt.Sprintf("%.0fW", g.GetPowerWatts())
		}
		if g.TemperatureCelsius != nil {
			row[5] = fmt.Sprintf("%.0fC", g.GetTemperatureCelsius())
		}
		if g.GetError() != "" {
			row[6] = "no answer: " + clean(g.GetError())
		}
		rows = append(rows, row)
	}
	return aligned(rows)
}

// topRows are the owners that have something, in order.
func topRows(s *telemetryv1.Sample, order string) []topRow {
	var rows []topRow
	for _, g := range s.GetGpus() {
		for _, u := range g.GetUses() {
			if u.GetOwner() == "grant" || u.GetProcesses() > 0 || u.GetMemoryBytes().GetValue() > 0 || u.GetSmRatio().GetValue() > 0 {
				rows = append(rows, topRow{g, u})
			}
		}
	}
	key := map[string]func(*telemetryv1.Use) float64{
		"memory": func(u *telemetryv1.Use) float64 { return u.GetMemoryBytes().GetValue() },
		"sm":     func(u *telemetryv1.Use) float64 { return u.GetSmRatio().GetValue() },
		"energy": func(u *telemetryv1.Use) float64 { return u.GetEnergyJoules().GetValue() },
		"idle":   func(u *telemetryv1.Use) float64 { return u.GetIdleSeconds() },
	}[order]
	slices.SortStableFunc(rows, func(a, b topRow) int {
		switch {
		case key != nil:
			return cmp.Compare(key(b.use), key(a.use))
		case order == "name":
			return cmp.Compare(topName(a.use), topName(b.use))
		}
		return cmp.Compare(a.gpu.GetIndex(), b.gpu.GetIndex())
	})
	return rows
}

func topName(u *telemetryv1.Use) string {
	switch u.GetOwner() {
	case "grant":
		return or(u.GetGrant())
	case "stranger":
		return "(strangers)"
	}
	return "(nobody's)"
}

func topUses(rows []topRow) string {
	lines := [][]string{{"GPU", "OWNER", "MEMORY", "LIMIT", "SM", "SHARE", "ENERGY", "IDLE", "PROCS", "LEVEL"}}
	for _, r := range rows {
		u := r.use
		line := []string{
			strconv.Itoa(int(r.gpu.GetIndex())), topName(u), topAmount(u.GetMemoryBytes(), func(v float64) string { return size(uint64(v)) }), unknown,
			topAmount(u.GetSmRatio(), ratio), unknown, topAmount(u.GetEnergyJoules(), func(v float64) string { return fmt.Sprintf("%.0fJ", v) }),
			unknown, strconv.Itoa(int(u.GetProcesses())), or(u.GetLevel()),
		}
		if p := u.GetInstanceProfile(); p != "" {
			line[0] += "/" + clean(p) + "@" + strconv.Itoa(int(u.GetInstanceStart()))
		}
		if u.GetOwner() == "grant" {
			line[3] = withLent(u.GetMemoryLimitBytes(), u.GetMemoryLentBytes())
			line[5] = percent(uint32(u.GetComputeLimitRatio()*float64(sharing.FullGPU) + 0.5))
		}
		if u.IdleSeconds != nil {
			line[7] = fmt.Sprintf("%.0fs", u.GetIdleSeconds())
		}
		lines = append(lines, line)
	}
	return aligned(lines)
}

// topAmount renders a value with the mark of how it is known.
func topAmount(a *telemetryv1.Amount, text func(float64) string) string {
	if a == nil {
		return unknown
	}
	return text(a.GetValue()) + map[string]string{"instance": "*", "device-share": "~"}[a.GetKnown()]
}

func ratio(v float64) string { return fmt.Sprintf("%.0f%%", 100*v) }
