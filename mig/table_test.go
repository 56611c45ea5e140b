// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// legal is the rule, unit by unit and without masks.
func legal(profiles map[int]mig.Profile, set []mig.Place) bool {
	taken := map[int]bool{}
	count := map[int]int{}
	var compute, most int
	var used, all [4]int
	for _, p := range profiles {
		most = max(most, p.Compute)
		for i, n := range []int{p.Engines.Decoders, p.Engines.Encoders, p.Engines.JPEGs, p.Engines.OFAs} {
			all[i] = max(all[i], n)
		}
	}
	for _, at := range set {
		p := profiles[at.Profile]
		for u := at.Start; u < at.Start+p.Size; u++ {
			if taken[u] {
				return false
			}
			taken[u] = true
		}
		for i, n := range []int{p.Engines.Decoders, p.Engines.Encoders, p.Engines.JPEGs, p.Engines.OFAs} {
			if used[i] += n; used[i] > all[i] {
				return false
			}
		}
		compute += p.Compute
		if count[p.ID]++; count[p.ID] > p.MaxInstances || compute > most {
			return false
		}
	}
	return true
}

// Every legal set of every table is walked, and for each the table must say of every place what the rule says.
func TestEveryLegalSet(t *testing.T) {
	for model := range machines {
		t.Run(model, func(t *testing.T) {
			table := table(t, model)
			profiles := map[int]mig.Profile{}
			var all []mig.Place
			for _, p := range table.Profiles() {
				profiles[p.ID] = p
				for _, s := range p.Starts {
					all = append(all, mig.Place{Profile: p.ID, Start: s})
				}
			}
			sets := 0
			var walk func(o mig.Occupancy, set []mig.Place, from int)
			walk = func(o mig.Occupancy, set []mig.Place, from int) {
				sets++
				for i, at := range all {
					want := legal(profiles, append(slices.Clip(set), at))
					if got := table.Fits(o, at); got != want {
						t.Fatalf("next to %v, %v fits: %v, want %v", set, at, got, want)
					}
					if !want || i < from {
						continue
					}
					next, err := table.Add(o, at)
					if err != nil {
						t.Fatal(err)
					}
					if back, err := table.Remove(next, at); err != nil || back != o {
						t.Fatalf("%v and back is %v, want %v (%v)", at, back, o, err)
					}
					walk(next, append(slices.Clip(set), at), i+1)
				}
			}
			walk(mig.Occupancy{}, nil, 0)
			if sets < 20 {
				t.Errorf("%d legal sets are too few to be a test", sets)
			}
			t.Logf("%d legal sets", sets)
		})
	}
}

// Known facts of the hardware, in addition to the rule.
func TestKnownSets(t *testing.T) {
	tests := map[string]struct {
		model string
		have  []string
		want  string // the profiles that still fit, each with its starts
	}{
		"two 3g waste a compute slice": {"A100", []string{"3g.40gb@0", "3g.40gb@4"}, ""},
		"4g and 3g fill it":            {"H100", []string{"4g.40gb@0", "3g.40gb@4"}, ""},
		"a 1g at 0 blocks 4g and 7g": {"H100", []string{"1g.10gb@0", "2g.20gb@2"},
			"1g.10gb@1 1g.10gb@4 1g.10gb@5 1g.10gb@6 1g.10gb+me@1 1g.10gb+me@4 1g.10gb+me@5 1g.10gb+me@6 1g.20gb@4 " +
				"1g.20gb@6 2g.20gb@4 3g.40gb@4"},
		"seven 1g leave the last slice idle": {"H200", []string{"1g.18gb@0", "1g.18gb@1", "1g.18gb@2", "1g.18gb@3",
			"1g.18gb@4", "1g.18gb@5", "1g.18gb@6"}, ""},
		"media engines are in one instance": {"A30", []string{"1g.6gb+me@0"}, "1g.6gb@1 1g.6gb@2 1g.6gb@3 2g.12gb@2"},
		"all media in one leaves the rest without": {"RTX PRO 6000", []string{"1g.24gb+me.all@0"},
			"1g.24gb-me@3 1g.24gb-me@6 1g.24gb-me@9 2g.48gb-me@6"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			table := table(t, tt.model)
			o, err := table.Occupy(places(t, table, tt.have...))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range table.Places(o) {
				got = append(got, table.Name(p.Profile)+"@"+string(rune('0'+p.Start)))
			}
			if d := cmp.Diff(tt.want, strings.Join(got, " ")); d != "" {
				t.Errorf("what fits (-want +got):\n%s", d)
			}
		})
	}
}

func TestWhatTheDriverMustNotReport(t *testing.T) {
	good := mig.Profile{ID: 1, Name: "1g.5gb", Compute: 1, Memory: 5 << 30, MaxInstances: 1, Size: 1, Starts: []int{0}}
	with := func(change func(*mig.Profile)) []mig.Profile {
		p := good
		change(&p)
		return []mig.Profile{p}
	}
	tests := map[string]struct {
		profiles []mig.Profile
		want     error
	}{
		"none":           {nil, sharing.ErrUnsupported},
		"a long axis":    {with(func(p *mig.Profile) { p.Starts = []int{16} }), sharing.ErrUnsupported},
		"no place":       {with(func(p *mig.Profile) { p.Starts = nil }), sharing.ErrInvalid},
		"a place twice":  {with(func(p *mig.Profile) { p.Starts = []int{1, 0, 1} }), sharing.ErrInvalid},
		"before 0":       {with(func(p *mig.Profile) { p.Starts = []int{-1} }), sharing.ErrInvalid},
		"no memory":      {with(func(p *mig.Profile) { p.Memory = 0 }), sharing.ErrInvalid},
		"no name":        {with(func(p *mig.Profile) { p.Name = "" }), sharing.ErrInvalid},
		"engines":        {with(func(p *mig.Profile) { p.Engines.JPEGs = -1 }), sharing.ErrInvalid},
		"two of one":     {[]mig.Profile{good, good}, sharing.ErrInvalid},
		"too many":       {make([]mig.Profile, mig.MaxProfiles+1), sharing.ErrUnsupported},
		"a whole number": {[]mig.Profile{good}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := mig.NewTable(tt.profiles); !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
		})
	}
}
