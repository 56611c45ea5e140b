// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
)

// topRow is one owner on one GPU, or on several.
type topRow struct {
	gpu *telemetryapi.GPU
	use *telemetryapi.Usage
	// gpus are the indexes where there may be several, else nil.
	gpus map[int32]bool
}

// Top renders one sample: a line per GPU, and the lines that the view asks for, in its order. What is not known is "-",
// and a value that is known by less than its processes has a mark, which the last line explains.
func Top(s *telemetryapi.Sample, v TopView) string {
	var b strings.Builder
	fmt.Fprintf(&b, "source %s, driver %s", or(s.GetSource()), or(s.GetDriverVersion()))
	for _, n := range MissingValues(s) {
		b.WriteString("; " + n)
	}
	b.WriteString("\n\n" + topGPUs(s, v))
	rows := topRows(s, v)
	if len(rows) == 0 || v.By == "gpu" {
		return b.String()
	}
	b.WriteString("\n" + topUses(rows, v))
	if strings.ContainsAny(b.String(), "*~") {
		b.WriteString("\n* of a MIG instance or a whole GPU   ~ a part of the GPU's value\n")
	}
	return b.String()
}

// MissingValues say what a sample lacks.
func MissingValues(s *telemetryapi.Sample) []string {
	var out []string
	if !s.GetAgentUp() {
		out = append(out, "the agent does not answer: showing the last known grants")
	}
	if n := s.GetMissed(); n > 0 {
		out = append(out, fmt.Sprintf("%d samples missed", n))
	}
	return out
}

func topGPUs(s *telemetryapi.Sample, v TopView) string {
	rows := [][]string{gpuHead(v.Wide)}
	for _, g := range gpusInOrder(s, v) {
		rows = append(rows, gpuCells(g, v.Wide))
	}
	return aligned(rows)
}

// gpusInOrder are the GPUs by their index or, where there are no other lines, in the order of the view.
func gpusInOrder(s *telemetryapi.Sample, v TopView) []*telemetryapi.GPU {
	gpus := slices.Clone(s.GetGpus())
	if v.By != "gpu" {
		return gpus
	}
	key := map[string]func(*telemetryapi.GPU) float64{
		"memory": func(g *telemetryapi.GPU) float64 { return float64(g.GetMemoryUsedBytes()) },
		"sm":     func(g *telemetryapi.GPU) float64 { return g.GetSmRatio() },
		"energy": func(g *telemetryapi.GPU) float64 { return g.GetPowerWatts() },
	}[v.Order]
	slices.SortStableFunc(gpus, func(a, b *telemetryapi.GPU) int {
		if key == nil {
			return cmp.Compare(a.GetIndex(), b.GetIndex())
		}
		return cmp.Compare(key(b), key(a))
	})
	return reversed(gpus, v.Reverse)
}

// topOwners are the owners that have something: by pod, one row for all GPUs of a pod.
func topOwners(s *telemetryapi.Sample, by string) []topRow {
	var rows []topRow
	for _, g := range s.GetGpus() {
		for _, u := range g.GetUsages() {
			if u.GetOwner() == "grant" || u.GetProcesses() > 0 || u.GetMemoryBytes().GetValue() > 0 ||
				u.GetSmRatio().GetValue() > 0 {
				rows = append(rows, topRow{gpu: g, use: u})
			}
		}
	}
	if by == "pod" {
		rows = perPod(rows)
	}
	return rows
}

// topRows are the owners that have something, in order.
func topRows(s *telemetryapi.Sample, v TopView) []topRow {
	rows := topOwners(s, v.By)
	key := map[string]func(*telemetryapi.Usage) float64{
		"memory": func(u *telemetryapi.Usage) float64 { return u.GetMemoryBytes().GetValue() },
		"sm":     func(u *telemetryapi.Usage) float64 { return u.GetSmRatio().GetValue() },
		"energy": func(u *telemetryapi.Usage) float64 { return u.GetEnergyJoules().GetValue() },
		"idle":   func(u *telemetryapi.Usage) float64 { return u.GetIdleSeconds() },
	}[v.Order]
	slices.SortStableFunc(rows, func(a, b topRow) int {
		switch {
		case key != nil:
			return cmp.Compare(key(b.use), key(a.use))
		case v.Order == "name":
			return cmp.Compare(topName(a.use), topName(b.use))
		}
		return cmp.Compare(a.gpu.GetIndex(), b.gpu.GetIndex())
	})
	return reversed(rows, v.Reverse)
}

func topUses(rows []topRow, v TopView) string {
	lines := [][]string{append(useHead(), v.more("CLAIM")...)}
	for _, r := range rows {
		lines = append(lines, append(r.cells(), v.more(or(strings.Join(r.use.GetClaims(), ",")))...))
	}
	return aligned(lines)
}

// ClusterUsage is what one owner uses of one GPU of a cluster. Amounts are nil if unknown.
type ClusterUsage struct {
	Node string `json:"node"`
	GPU  string `json:"gpu"`
	// Index is the GPU's on its node.
	Index int `json:"index"`
	// Grant is the ID of the grant; it is empty for an owner without a grant.
	Grant     string `json:"grant"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Level     string `json:"level"`
	// Claims are the ResourceClaims of the grant, as CLAIM/REQUEST.
	Claims []string `json:"claims,omitempty"`
	// MemoryBytes is granted, UsedBytes in use, and SM the part of the time in which the GPU worked for it, 0 to 1.
	MemoryBytes uint64   `json:"memoryBytes"`
	UsedBytes   *float64 `json:"usedBytes"`
	SM          *float64 `json:"smRatio"`
}

// name is whose a use is.
func (u ClusterUsage) name() string {
	switch {
	case u.Grant == "":
		return "(unmanaged)"
	case u.Pod == "":
		return clean(u.Grant)
	}
	return clean(u.Namespace + "/" + u.Pod + "/" + u.Container)
}

// UseNames returns the pods and the grants of processes, without repetition.
func UseNames(uses []ClusterUsage) []string {
	var out []string
	for _, u := range uses {
		switch {
		case u.Pod != "":
			out = append(out, "pod/"+u.Pod)
		case u.Grant != "":
			out = append(out, "grant/"+u.Grant)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// SampleNames returns the grants of a sample, without repetition.
func SampleNames(s *telemetryapi.Sample) []string {
	var out []string
	for _, g := range s.GetGpus() {
		for _, u := range g.GetUsages() {
			if u.GetGrantId() != "" {
				out = append(out, "grant/"+u.GetGrantId())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ClusterTop renders what is used in a cluster, in one of TopOrders.
func ClusterTop(uses []ClusterUsage, order string, o Options) string {
	value := func(v *float64) float64 {
		if v == nil {
			return -1
		}
		return *v
	}
	slices.SortStableFunc(uses, func(a, b ClusterUsage) int {
		switch order {
		case "memory":
			return cmp.Compare(value(b.UsedBytes), value(a.UsedBytes))
		case "sm":
			return cmp.Compare(value(b.SM), value(a.SM))
		case "name":
			return cmp.Compare(a.name(), b.name())
		}
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Index, b.Index))
	})
	rows, styles := [][]string{{"NODE/GPU", "OWNER", "USED", "GRANTED", "SM", "LEVEL"}}, []style{bold}
	if o.Wide {
		rows[0] = append(rows[0], "GRANT", "UUID", "CLAIM")
	}
	for _, u := range uses {
		row := []string{clean(u.Node) + "/" + strconv.Itoa(u.Index), u.name(), unknown, unknown, unknown, or(u.Level)}
		st := plainStyle
		if u.Grant != "" {
			row[3] = size(u.MemoryBytes)
		}
		if u.UsedBytes != nil {
			row[2] = size(uint64(max(0, *u.UsedBytes)))
			if u.Grant != "" && *u.UsedBytes > float64(u.MemoryBytes) {
				st = yellow
			}
		}
		if u.SM != nil {
			row[4] = ratio(*u.SM)
		}
		if o.Wide {
			row = append(row, or(u.Grant), or(u.GPU), or(strings.Join(u.Claims, ",")))
		}
		rows, styles = append(rows, row), append(styles, st)
	}
	return painted(rows, styles, o)
}
