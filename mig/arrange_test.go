// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// Walking every legal set shows which numbers of each profile fit at all. Arrange must agree for each of these, and for
// each with one more.
func TestArrangeAgainstBruteForce(t *testing.T) {
	for model := range machines {
		t.Run(model, func(t *testing.T) {
			table := table(t, model)
			fits := map[string]bool{}
			lists := map[string][]int{}
			var walk func(o mig.Occupancy, ids []int)
			seen := map[mig.Occupancy]bool{}
			walk = func(o mig.Occupancy, ids []int) {
				if seen[o] {
					return
				}
				seen[o] = true
				key, sorted := multiset(ids)
				fits[key], lists[key] = true, sorted
				for _, p := range table.Places(o) {
					next, err := table.Add(o, p)
					if err != nil {
						t.Fatal(err)
					}
					walk(next, append(slices.Clip(ids), p.Profile))
				}
			}
			walk(mig.Occupancy{}, nil)
			for _, ids := range lists {
				for _, p := range table.Profiles() {
					more := slices.Concat(ids, []int{p.ID})
					key, _ := multiset(more)
					got, err := table.Arrange(more)
					if (err == nil) != fits[key] || err != nil && !errors.Is(err, sharing.ErrInvalid) {
						t.Fatalf("%v: %v, fits: %v", more, err, fits[key])
					}
					if err != nil {
						continue
					}
					if _, err := table.Occupy(got); err != nil {
						t.Fatalf("%v arranged as %v: %v", more, got, err)
					}
					for i := range got {
						if got[i].Profile != more[i] {
							t.Fatalf("%v arranged as %v", more, got)
						}
					}
				}
			}
		})
	}
}

func multiset(ids []int) (string, []int) {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return fmt.Sprint(ids), ids
}

func TestWhyNotShowsTheArithmetic(t *testing.T) {
	h100 := table(t, "H100")
	for name, tt := range map[string]struct {
		have    []string
		profile string
		want    string
	}{
		"by a sum": {[]string{"1g.10gb@0", "3g.40gb@4"}, "4g.40gb",
			"full: 4g.40gb takes 4 of 7 compute slices; 3 are free"},
		"fragmented": {[]string{"1g.10gb@0", "1g.10gb@4"}, "3g.40gb",
			"fragmented: 3g.40gb takes 4 of 8 memory units from 0,4; 6 are free (1-3,5-7)"},
		"by units": {[]string{"3g.40gb@0", "3g.40gb@4"}, "1g.10gb",
			"full: 1g.10gb takes 1 of 8 memory units from 0,1,2,3,4,5,6; 0 are free (none)"},
		"by count":   {[]string{"1g.10gb+me@0"}, "1g.10gb+me", "full: 1 of at most 1 1g.10gb+me are there"},
		"not at all": {[]string{"1g.10gb@0"}, "2g.20gb", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := h100.Occupy(places(t, h100, tt.have...))
			if err != nil {
				t.Fatal(err)
			}
			if got := h100.UnfitReason(o, id(t, h100, tt.profile)); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
	for name, tt := range map[string]struct {
		model, profiles, want string
	}{
		"sums": {"H100", "3g.40gb 3g.40gb 3g.40gb", "takes 12 of 8 memory units, 9 of 7 compute slices, 9 of 7 " +
			"decoders, 9 of 7 JPEG engines, 3 of at most 2 3g.40gb"},
		"places": {"H100", "1g.20gb 2g.20gb 2g.20gb 2g.20gb 1g.10gb",
			"takes 9 of 8 memory units, 8 of 7 compute slices, 8 of 7 decoders, 8 of 7 JPEG engines"},
		"no places":  {"A100", "4g.40gb 2g.20gb 1g.10gb 1g.20gb", "9 of 8 memory units"},
		"by places":  {"A100", "4g.40gb 1g.20gb 1g.10gb 1g.10gb", ""},
		"one engine": {"A30", "1g.6gb+me 2g.12gb+me", "2 of 1 JPEG engines, 2 of 1 optical flow engines"},
	} {
		t.Run("layout "+name, func(t *testing.T) {
			table := table(t, tt.model)
			var ids []int
			for n := range strings.FieldsSeq(tt.profiles) {
				ids = append(ids, id(t, table, n))
			}
			_, err := table.Arrange(ids)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
