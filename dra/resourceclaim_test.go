// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"slices"
	"testing"

	"github.com/kerf-gpu/kerf/dra/resourceclaim"
)

// TestResourceClaim: only results and parameters of Kerf are read.
func TestResourceClaim(t *testing.T) {
	c := resourceclaim.Of(claim())
	if c.UID != uid || c.String() != "team/one" || !slices.Equal(c.Pods, []string{"uid-p"}) || len(c.Results) != 3 {
		t.Fatalf("%+v", c)
	}
	first, second, third := c.Results[0], c.Results[1], c.Results[2]
	if first.Memory != 10<<30 || first.Percent != 25 || first.ShareID != "share-1" ||
		!first.StatesMemory || first.Admin {
		t.Errorf("%+v", first)
	}
	if !second.StatesMemory || third.StatesMemory || !third.Admin || third.Memory != 0 {
		t.Errorf("%+v, %+v", second, third)
	}
	if len(c.Configs) != 1 || !c.Configs[0].FromClass || string(c.Configs[0].Parameters) != "{}" {
		t.Errorf("%+v", c.Configs)
	}
}
