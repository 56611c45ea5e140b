// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
	"github.com/kerf-gpu/kerf/sharing"
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
	if !s.GetAgentUp() {
		b.WriteString("; the agent does not answer: showing the last known grants")
	}
	if n := s.GetMissed(); n > 0 {
		fmt.Fprintf(&b, "; %d samples missed", n)
	}
	b.WriteString(v.line() + "\n\n" + topGPUs(s, v))
	rows := topRows(s, v)
	if len(rows) == 0 || v.By == "gpu" {
		return b.String()
	}
	b.WriteString("\n" + topUses(rows))
	if strings.ContainsAny(b.String(), "*~") {
		b.WriteString("\n* of a MIG instance or a whole GPU   ~ a part of the GPU's value\n")
	}
	return b.String()
}

func topGPUs(s *telemetryapi.Sample, v TopView) string {
	rows := [][]string{{"GPU", "MEMORY", "ALLOCATABLE", "SM", "POWER", "TEMP", "MODEL"}}
	if v.Wide {
		rows[0] = append(rows[0], "UUID")
	}
	for _, g := range gpusInOrder(s, v) {
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
		if v.Wide {
			row = append(row, or(g.GetUuid()))
		}
		rows = append(rows, row)
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

// topRows are the owners that have something, in order.
func topRows(s *telemetryapi.Sample, v TopView) []topRow {
	var rows []topRow
	for _, g := range s.GetGpus() {
		for _, u := range g.GetUsages() {
			if u.GetOwner() == "grant" || u.GetProcesses() > 0 || u.GetMemoryBytes().GetValue() > 0 ||
				u.GetSmRatio().GetValue() > 0 {
				rows = append(rows, topRow{gpu: g, use: u})
			}
		}
	}
	if v.By == "pod" {
		rows = perPod(rows)
	}
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

func topUses(rows []topRow) string {
	lines := [][]string{{"GPU", "OWNER", "MEMORY", "LIMIT", "SM", "SHARE", "ENERGY", "IDLE", "PROCS", "LEVEL"}}
	for _, r := range rows {
		u := r.use
		line := []string{
			r.at(), topName(u), topAmount(u.GetMemoryBytes(), func(v float64) string { return size(uint64(v)) }),
			unknown,
			topAmount(u.GetSmRatio(), ratio), unknown,
			topAmount(u.GetEnergyJoules(), func(v float64) string { return fmt.Sprintf("%.0fJ", v) }),
			unknown, strconv.Itoa(int(u.GetProcesses())), or(u.GetLevel()),
		}
		if p := u.GetInstanceProfile(); p != "" {
			line[0] += "/" + clean(p) + "@" + strconv.Itoa(int(u.GetInstanceStart()))
		}
		if u.GetOwner() == "grant" {
			line[3] = withLent(u.GetMemoryGuaranteedBytes(), u.GetMemoryBurstBytes())
			line[5] = percent(uint32(u.GetComputeGrantedRatio()*float64(sharing.FullGPU) + 0.5))
		}
		if u.IdleSeconds != nil {
			line[7] = fmt.Sprintf("%.0fs", u.GetIdleSeconds())
		}
		lines = append(lines, line)
	}
	return aligned(lines)
}

// topAmount renders a value with the mark of how it is known.
func topAmount(a *telemetryapi.Amount, text func(float64) string) string {
	if a == nil {
		return unknown
	}
	return text(a.GetValue()) + map[string]string{"instance": "*", "device-share": "~"}[a.GetAttribution()]
}

func ratio(v float64) string { return fmt.Sprintf("%.0f%%", 100*v) }

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
		rows[0] = append(rows[0], "GRANT", "UUID")
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
			row = append(row, or(u.Grant), or(u.GPU))
		}
		rows, styles = append(rows, row), append(styles, st)
	}
	return painted(rows, styles, o)
}
