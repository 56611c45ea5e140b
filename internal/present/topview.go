// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"slices"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
)

// TopView says what Top shows, and in which order.
type TopView struct {
	// Order is one of TopOrders, and Reverse turns it round.
	Order   string
	Reverse bool
	// By is one of TopRows: a line for each owner on each GPU, for each pod over all GPUs, or GPUs alone.
	By string
	// Wide adds the UUIDs of the GPUs, and the claims of grants.
	Wide bool
}

// TopOrders are the orders in which Top can put what uses the GPUs.
func TopOrders() []string { return []string{"gpu", "memory", "sm", "energy", "idle", "name"} }

// TopRows are the rows that Top can show in addition to the GPUs.
func TopRows() []string { return []string{"owner", "pod", "gpu"} }

// step is the element that many places after at, cyclic. If at is not in all, it is the first element.
func step(all []string, at string, by int) string {
	i := slices.Index(all, at)
	if i < 0 {
		return all[0]
	}
	return all[(i+by+len(all))%len(all)]
}

// perPod makes one row of all that a pod uses on all GPUs. What is no pod's stays as it is, one row for each grant.
func perPod(rows []topRow) []topRow {
	var out []topRow
	at := map[string]int{}
	for _, r := range rows {
		if r.use.GetOwner() != "grant" {
			out = append(out, r)
			continue
		}
		key := "grant " + r.use.GetGrantId()
		if r.use.GetPod() != "" {
			key = "pod " + r.use.GetNamespace() + "/" + r.use.GetPod()
		}
		i, seen := at[key]
		if !seen {
			at[key] = len(out)
			out = append(out, topRow{gpu: r.gpu, use: podUse(r.use), gpus: map[int32]bool{r.gpu.GetIndex(): true}})
			continue
		}
		out[i].gpus[r.gpu.GetIndex()] = true
		addUse(out[i].use, r.use)
	}
	return out
}

// podUse is a use under the name of its pod, of which nothing is known that does not add up.
func podUse(u *telemetryapi.Usage) *telemetryapi.Usage {
	name := u.GetGrant()
	if u.GetPod() != "" {
		name = u.GetNamespace() + "/" + u.GetPod()
	}
	return &telemetryapi.Usage{
		Owner: u.GetOwner(), Grant: name, Level: u.GetLevel(), MemoryGuaranteedBytes: u.GetMemoryGuaranteedBytes(),
		MemoryBurstBytes:    u.GetMemoryBurstBytes(),
		ComputeGrantedRatio: u.GetComputeGrantedRatio(), Processes: u.GetProcesses(), MemoryBytes: u.GetMemoryBytes(),
		SmRatio:      u.GetSmRatio(),
		EnergyJoules: u.GetEnergyJoules(), IdleSeconds: u.IdleSeconds, Claims: slices.Clone(u.GetClaims()),
	}
}

// addUse adds another use of the same pod. A sum of which one part is not known is not known.
func addUse(sum, u *telemetryapi.Usage) {
	sum.Claims = append(sum.Claims, u.GetClaims()...)
	slices.Sort(sum.Claims)
	sum.Claims = slices.Compact(sum.Claims)
	sum.MemoryGuaranteedBytes += u.GetMemoryGuaranteedBytes()
	sum.MemoryBurstBytes += u.GetMemoryBurstBytes()
	sum.ComputeGrantedRatio += u.GetComputeGrantedRatio()
	if sum.Processes < 0 || u.GetProcesses() < 0 {
		sum.Processes = UnknownProcesses
	} else {
		sum.Processes += u.GetProcesses()
	}
	sum.MemoryBytes = addAmounts(sum.MemoryBytes, u.GetMemoryBytes())
	sum.SmRatio = addAmounts(sum.SmRatio, u.GetSmRatio())
	sum.EnergyJoules = addAmounts(sum.EnergyJoules, u.GetEnergyJoules())
	if sum.IdleSeconds == nil || u.IdleSeconds == nil {
		sum.IdleSeconds = nil
	} else if u.GetIdleSeconds() < sum.GetIdleSeconds() {
		sum.IdleSeconds = u.IdleSeconds // it is idle since the last of it is
	}
	if u.GetLevel() != sum.GetLevel() {
		sum.Level = "mixed"
	}
}

func addAmounts(a, b *telemetryapi.Amount) *telemetryapi.Amount {
	if a == nil || b == nil {
		return nil
	}
	known := a.GetAttribution()
	// The weakest of both: a sum is no better known than its worst part.
	for _, weak := range []string{"device-share", "instance"} {
		if b.GetAttribution() == weak && known != "device-share" {
			known = weak
		}
	}
	return &telemetryapi.Amount{Value: a.GetValue() + b.GetValue(), Attribution: known}
}

// reversed turns rows round where the view says so.
func reversed[T any](rows []T, reverse bool) []T {
	if reverse {
		slices.Reverse(rows)
	}
	return rows
}
