// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Part is a record, with what it may be grouped by.
type Part struct {
	Record
	// Labels are by name: see Keys.
	Labels map[string]string
}

// Keys are what a report can be grouped by.
func Keys() []string {
	return []string{"namespace", "pod", "container", "user", "profile", "level", "model", "node", "claim"}
}

// LabelKey is the prefix of a key for a pod's label. The label's name follows.
const LabelKey = "label:"

// labelName matches the name of a label.
var labelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9./_-]*$`)

// CheckKeys rejects a key that is not in Keys and names no label of a pod. The error has the type
// *sharing.FieldError.
func CheckKeys(field string, by []string) error {
	for i, k := range by {
		label, is := strings.CutPrefix(k, LabelKey)
		if !slices.Contains(Keys(), k) && (!is || !labelName.MatchString(label)) {
			return sharing.Invalid(field, k, "write some of "+strings.Join(Keys(), ", ")+", or "+LabelKey+
				" and a pod's label", "is nothing to group by")
		}
		if slices.Index(by, k) < i {
			return sharing.Invalid(field, k, "name it once", "is named twice")
		}
	}
	return nil
}

// Price tells what an hour of a whole GPU of a model costs; ok is false where that is not known.
type Price func(model string) (price float64, ok bool)

// Row is one group of a report. Hours are of whole GPUs: half a GPU for two hours is one.
type Row struct {
	Labels map[string]string `json:"labels"`
	// Granted is what was granted, and Used the known usage of it. Idle is the time without any usage of the grant.
	// Wasted is what was not used (Idle is a part of it). Unknown is what is not known.
	Granted float64 `json:"grantedGPUHours"`
	Used    float64 `json:"usedGPUHours"`
	Wasted  float64 `json:"wastedGPUHours"`
	Idle    float64 `json:"idleGPUHours"`
	Unknown float64 `json:"unknownGPUHours"`
	// KWh is the energy, nil where none of it is known; of part of the time it may not be.
	KWh *float64 `json:"kwh"`
	// Cost is for what was granted, and for the energy; nil where a price is missing.
	Cost *float64 `json:"cost"`
	// MemoryP99 and ComputeP99 are the 99th percentiles of use in percent: of the granted memory, and of the granted
	// part of the GPU's time. They are nil where use is not known.
	MemoryP99  *int `json:"memoryP99Percent"`
	ComputeP99 *int `json:"computeP99Percent"`
	// Enough is the percent of the grants that would have been enough. It is nil if that is unknown, or they had
	// none to spare. The saved amounts are what that would have saved.
	Enough     *int     `json:"enoughPercent"`
	SavedHours *float64 `json:"savedGPUHours"`
	SavedMoney *float64 `json:"savedCost"`
	sums       sums
}

// sums are what the numbers of a row are made of.
type sums struct {
	memory, gpu Histogram
	noPrice     bool
	cost, kwh   float64
	powered     bool
}

// headroom is what a request should have above the 99th percentile of its use.
const headroom = 1.1

// Report groups parts, in the order of their labels. kwhPrice is 0 for none.
func Report(parts []Part, by []string, price Price, kwhPrice float64) []Row {
	rows := map[string]*Row{}
	for _, p := range parts {
		labels, name := map[string]string{}, ""
		for _, k := range by {
			labels[k] = p.Labels[k]
			name += p.Labels[k] + "\x00"
		}
		r := rows[name]
		if r == nil {
			r = &Row{Labels: labels, sums: sums{memory: Histogram{}, gpu: Histogram{}}}
			rows[name] = r
		}
		r.add(p.Record, price)
	}
	out := make([]Row, 0, len(rows))
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		r := rows[name]
		r.finish(kwhPrice)
		out = append(out, *r)
	}
	return out
}

func (r *Row) add(p Record, price Price) {
	const hour = 3600
	granted := p.Share * p.Seconds / hour
	known := p.Share * p.Known / hour
	used := min(p.Busy/hour, known) // usage above the share was idle time, and is no waste
	r.Granted += granted
	r.Used += p.Busy / hour
	r.Wasted += known - used
	r.Idle += p.Share * p.Idle / hour
	r.Unknown += granted - known
	r.sums.kwh += p.Joules / 3.6e6
	r.sums.powered = r.sums.powered || p.Powered > 0
	if each, ok := price(p.Model); ok {
		r.sums.cost += granted * each
	} else {
		r.sums.noPrice = true
	}
	r.sums.memory.Merge(p.Memory)
	if p.Share > 0 {
		for b, s := range p.Compute {
			r.sums.gpu.add(float64(b)/p.Share, s)
		}
	}
}

// finish makes the values of the sums.
func (r *Row) finish(kwhPrice float64) {
	cost := r.sums.cost
	if r.sums.powered {
		r.KWh = &r.sums.kwh
		cost += r.sums.kwh * kwhPrice
	}
	if !r.sums.noPrice {
		r.Cost = &cost
	}
	need := 0
	if r.sums.memory.Seconds() > 0 {
		p := r.sums.memory.Quantile(0.99)
		r.MemoryP99, need = &p, max(need, p)
	}
	if r.sums.gpu.Seconds() > 0 {
		p := r.sums.gpu.Quantile(0.99)
		r.ComputeP99, need = &p, max(need, p)
	}
	// Both must be known: a grant with little memory may need all of its time.
	enough := int(math.Ceil(float64(need) * headroom))
	if r.MemoryP99 == nil || r.ComputeP99 == nil || enough >= 100 {
		return
	}
	saved := r.Granted * float64(100-enough) / 100
	r.Enough, r.SavedHours = &enough, &saved
	if !r.sums.noPrice {
		money := r.sums.cost * float64(100-enough) / 100
		r.SavedMoney = &money
	}
}
