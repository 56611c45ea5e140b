// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"cmp"
	"slices"
	"strconv"
)

// ClusterUse is what one owner uses of one GPU of a cluster. Amounts are nil where nobody told them.
type ClusterUse struct {
	Node string `json:"node"`
	GPU  string `json:"gpu"`
	// Index is the GPU's on its node.
	Index int `json:"index"`
	// Claim is the claim's id; it is empty for the use of what has no grant.
	Claim     string `json:"claim"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Level     string `json:"level"`
	// MemoryBytes is granted, UsedBytes in use, and SM the part of the time in which the GPU worked for it, 0 to 1.
	MemoryBytes uint64   `json:"memory_bytes"`
	UsedBytes   *float64 `json:"used_bytes"`
	SM          *float64 `json:"sm_ratio"`
}

// name is whose a use is.
func (u ClusterUse) name() string {
	switch {
	case u.Claim == "":
		return "(no grant's)"
	case u.Pod == "":
		return clean(u.Claim)
	}
	return clean(u.Namespace + "/" + u.Pod + "/" + u.Container)
}

// ClusterTop renders what is used in a cluster, in one of TopOrders.
func ClusterTop(uses []ClusterUse, order string, o Options) string {
	value := func(v *float64) float64 {
		if v == nil {
			return -1
		}
		return *v
	}
	slices.SortStableFunc(uses, func(a, b ClusterUse) int {
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
	for _, u := range uses {
		row := []string{clean(u.Node) + "/" + strconv.Itoa(u.Index), u.name(), unknown, unknown, unknown, or(u.Level)}
		st := plainStyle
		if u.Claim != "" {
			row[3] = size(u.MemoryBytes)
		}
		if u.UsedBytes != nil {
			row[2] = size(uint64(max(0, *u.UsedBytes)))
			if u.Claim != "" && *u.UsedBytes > float64(u.MemoryBytes) {
				st = yellow
			}
		}
		if u.SM != nil {
			row[4] = ratio(*u.SM)
		}
		rows, styles = append(rows, row), append(styles, st)
	}
	return painted(rows, styles, o)
}
