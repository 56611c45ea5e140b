// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"testing"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sim/machine"
)

// machines are simulated machines by the model of their first GPU that has MIG: the tables are those of real
// drivers, kept in one place for all tests.
var machines = map[string]string{
	"A100": "a100x8", "A30": "a30x2", "H100": "h100x8", "H200": "h200x8", "B200": "b200x8",
	"RTX PRO 6000": "rtxpro6000x4",
}

func table(t testing.TB, model string) *mig.Table {
	t.Helper()
	m, err := machine.Load(machines[model])
	if err != nil {
		t.Fatal(err)
	}
	table, err := mig.NewTable(reported(m.GPUs[0].Model))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func reported(m machine.Model) []mig.Profile {
	var list []mig.Profile
	for _, p := range m.Profiles {
		list = append(list, mig.Profile{
			ID: int(p.ID), Name: p.Name, Compute: p.Slices, Memory: p.Memory, SMs: int(p.SMs), MaxInstances: p.Max,
			Size: p.Size, Starts: p.Starts,
			Engines: mig.Engines{Decoders: int(p.Decoders), Encoders: int(p.Encoders), JPEGs: int(p.JPEGs),
				OFAs: int(p.OFAs)},
		})
	}
	return list
}

// id is the id of the profile of that exact name.
func id(t testing.TB, table *mig.Table, name string) int {
	t.Helper()
	for _, p := range table.Profiles() {
		if p.Name == name {
			return p.ID
		}
	}
	t.Fatalf("no profile %q", name)
	return 0
}

// places reads "1g.10gb@6" and the like.
func places(t testing.TB, table *mig.Table, list ...string) []mig.Place {
	t.Helper()
	var out []mig.Place
	for _, s := range list {
		at := len(s) - 2
		out = append(out, mig.Place{Profile: id(t, table, s[:at]), Start: int(s[at+1] - '0')})
	}
	return out
}
