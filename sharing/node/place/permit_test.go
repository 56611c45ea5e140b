// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// The bounds of a profile are for all that a pod has of it.
func TestPermitPod(t *testing.T) {
	conf, err := config.New(config.Spec{
		Pools:    []config.Pool{{Name: "a"}},
		Profiles: []config.Profile{{Name: "p", Memory: sharing.GiB, MaxPerPod: 20 * sharing.GiB}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		amounts []int
		added   []ledger.GrantID
		ok      bool
	}{
		"within":            {[]int{10, 10}, []ledger.GrantID{"c1"}, true},
		"together too much": {[]int{10, 11}, []ledger.GrantID{"c1"}, false},
		"not new":           {[]int{10, 11}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := newNode()
			for _, amount := range tt.amounts {
				n.grant(0, amount, func(g *ledger.Grant) { g.Owner.PodUID, g.Request.Profile = "u", "p" })
			}
			n.grant(1, 30, func(g *ledger.Grant) { g.Owner.PodUID, g.Request.Profile = "other", "p" })
			if err := PermitPod(conf, n.Grants, "u", tt.added); (err == nil) != tt.ok {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestLevelsOf(t *testing.T) {
	driver := choice.Report{sharing.BackendDriver: yes}
	hardware, exclusive := sharing.LevelHardware, sharing.LevelExclusive
	for name, tt := range map[string]struct {
		mig    bool
		state  mig.State
		before choice.Report
		want   []sharing.Level
	}{
		"no MIG":           {false, mig.State{}, nil, []sharing.Level{exclusive, sharing.LevelDriver}},
		"shared instances": {true, mig.State{On: true, Shared: true}, nil, nil},
		"no instance":      {true, mig.State{On: true, Fixed: true}, nil, nil},
		"instances of a layout": {true, mig.State{On: true, Fixed: true, MaxInstances: map[string]int{"1g": 1}}, nil,
			[]sharing.Level{hardware}},
		"instances on demand": {true, mig.State{On: true}, nil, []sharing.Level{hardware}},
		"the mode on demand": {true, mig.State{On: true, ModeSwitchable: true}, driver,
			[]sharing.Level{hardware, exclusive, sharing.LevelDriver}},
		"not known before": {true, mig.State{On: true, ModeSwitchable: true}, nil, []sharing.Level{hardware}},
		"the state is not read yet": {true, mig.State{}, driver,
			[]sharing.Level{hardware, exclusive, sharing.LevelDriver}},
	} {
		t.Run(name, func(t *testing.T) {
			n, w := newNode()
			if tt.before != nil {
				w.before = map[sharing.GPUID]choice.Report{id(0).UUID: tt.before}
			}
			g := n.GPUs[0].GPU
			g.MIG = tt.mig
			if got, _ := n.LevelsOf(g, tt.state); !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
