// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
	"github.com/kerf-gpu/kerf/sharing"
)

func gpuHead(wide bool) []string {
	head := []string{"GPU", "MEMORY", "ALLOCATABLE", "SM", "POWER", "TEMP", "MODEL"}
	if wide {
		head = append(head, "UUID")
	}
	return head
}

// gpuCells are the columns of gpuHead.
func gpuCells(g *telemetryapi.GPU, wide bool) []string {
	row := []string{strconv.Itoa(int(g.GetIndex())), sizeOr(g.MemoryUsedBytes), sizeOr(g.MemoryAllocatableBytes),
		unknown, unknown, unknown, or(g.GetModel())}
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
	if wide {
		row = append(row, or(g.GetUuid()))
	}
	return row
}

// at says on which GPUs a row is.
func (r topRow) at() string {
	if len(r.gpus) < 2 {
		return strconv.Itoa(int(r.gpu.GetIndex()))
	}
	var all []string
	for _, i := range slices.Sorted(maps.Keys(r.gpus)) {
		all = append(all, strconv.Itoa(int(i)))
	}
	return strings.Join(all, ",")
}

func topName(u *telemetryapi.Usage) string {
	switch u.GetOwner() {
	case "grant":
		return or(u.GetGrant())
	case "unmanaged":
		return "(unmanaged)"
	}
	return "(unattributed)"
}

func useHead() []string {
	return []string{"GPU", "OWNER", "MEMORY", "LIMIT", "SM", "SHARE", "ENERGY", "IDLE", "PROCS", "LEVEL"}
}

// cells are the columns of useHead.
func (r topRow) cells() []string {
	u := r.use
	line := []string{
		r.at(), topName(u), topAmount(u.GetMemoryBytes(), func(v float64) string { return size(uint64(v)) }),
		unknown,
		topAmount(u.GetSmRatio(), ratio), unknown,
		topAmount(u.GetEnergyJoules(), func(v float64) string { return fmt.Sprintf("%.0fJ", v) }),
		unknown, processes(u.GetProcesses()), or(u.GetLevel()),
	}
	if p := u.GetInstanceProfile(); p != "" {
		line[0] += "/" + clean(p) + "@" + strconv.Itoa(int(u.GetInstanceStart()))
	}
	if u.GetOwner() == "grant" {
		line[3] = guaranteed(u.GetMemoryGuaranteedBytes(), u.GetMemoryBurstBytes(), true)
		line[5] = percent(uint32(u.GetComputeGrantedRatio()*float64(sharing.FullGPU) + 0.5))
	}
	if u.IdleSeconds != nil {
		line[7] = fmt.Sprintf("%.0fs", u.GetIdleSeconds())
	}
	return line
}

// UnknownProcesses is the number of processes of an owner whose processes are not counted.
const UnknownProcesses = -1

func processes(n int32) string {
	if n < 0 {
		return unknown
	}
	return strconv.Itoa(int(n))
}

// topAmount renders a value with the mark of how it is known.
func topAmount(a *telemetryapi.Amount, text func(float64) string) string {
	if a == nil {
		return unknown
	}
	return text(a.GetValue()) + map[string]string{"instance": "*", "device-share": "~"}[a.GetAttribution()]
}

func ratio(v float64) string { return fmt.Sprintf("%.0f%%", 100*v) }
