// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Unmatched are the choices of GPUs in the pool's rules and MIG layouts that none of the GPUs answers to, each with its path
// below the pool and its value: "gpus[0].index: 9". The products of a
// layout do not count: documents list those that a site does not have.
func (p Pool) Unmatched(gpus []sharing.GPU) []string {
	var out []string
	none := func(path string, value any, fits func(sharing.GPU) bool) {
		if !slices.ContainsFunc(gpus, fits) {
			out = append(out, fmt.Sprintf("%s: %v", path, value))
		}
	}
	for i, r := range p.GPUs {
		here := at("gpus", i)
		for _, glob := range r.Models {
			none(here+".model", glob, func(g sharing.GPU) bool { return sharing.MatchModels([]string{glob}, g.Model) })
		}
		for _, index := range r.Indexes {
			none(here+".index", index, func(g sharing.GPU) bool { return g.Index == index })
		}
		for _, id := range r.UUIDs {
			none(here+".uuid", id, func(g sharing.GPU) bool { return g.UUID.Device() == id })
		}
	}
	for i, l := range p.MIG {
		for _, index := range l.GPUs {
			none(at("mig", i)+".gpus", index, func(g sharing.GPU) bool { return g.Index == index })
		}
	}
	return out
}
