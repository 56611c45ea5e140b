// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package configplan

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// unmatched are the selectors in the pool's GPU rules and MIG layouts that match none of the GPUs, each with its path
// and value. Products of a layout do not count: configs list those that a site does not have.
func unmatched(p config.Pool, gpus []sharing.GPU) []string {
	var out []string
	none := func(path string, value any, fits func(sharing.GPU) bool) {
		if !slices.ContainsFunc(gpus, fits) {
			out = append(out, fmt.Sprintf("%s: %v", path, value))
		}
	}
	for i, r := range p.GPURules {
		here := fmt.Sprintf("gpuRules[%d]", i)
		for _, glob := range r.Models {
			none(here+".model", glob, func(g sharing.GPU) bool { return sharing.MatchModels([]string{glob}, g.Model) })
		}
		for _, index := range r.Indexes {
			none(here+".index", index, func(g sharing.GPU) bool { return g.Index == index })
		}
		for _, id := range r.UUIDs {
			none(here+".uuid", id, func(g sharing.GPU) bool { return g.UUID == id })
		}
	}
	for i, l := range p.MIGLayouts {
		for _, index := range l.GPUs {
			none(fmt.Sprintf("migLayouts[%d].index", i), index, func(g sharing.GPU) bool { return g.Index == index })
		}
	}
	return out
}
