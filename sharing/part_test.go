// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPartIDs(t *testing.T) {
	in := Instance{Profile: "1g.10gb+me", ID: 20, Start: 3, Size: 1}
	id := PartID(planA, in)
	slot, ok := id.Slot()
	if id != planA+"/1g.10gb+me@3" || id.Device() != planA || !id.IsPart() || !ok || slot != (PlannedMIG{"1g.10gb+me", 3}) {
		t.Errorf("%s: of %s, part %v, %+v %v", id, id.Device(), id.IsPart(), slot, ok)
	}
	if slot, ok := GPUID(planA).Slot(); ok || GPUID(planA).IsPart() || GPUID(planA).Device() != planA {
		t.Errorf("a GPU's own id: %+v", slot)
	}
	for _, bad := range []GPUID{planA + "/", planA + "/3g.40gb", planA + "/3g.40gb@", planA + "/3g.40gb@-1", planA + "/x@1"} {
		if slot, ok := bad.Slot(); ok {
			t.Errorf("%s: %+v", bad, slot)
		}
	}
	shares := Placement{{GPU: id, Memory: GiB}}
	planned := Planned(map[string]string{PlacementAnnotation("c"): PlacementValue(shares)}, "c")
	if d := cmp.Diff([]GPUID{id}, planned.Shares()); d != "" {
		t.Error(d)
	}
	if !shares[0].Cut() || (Fragment{GPU: planA}).Cut() || !(Fragment{GPU: planA, MIG: in}).Cut() {
		t.Error("which fragments lie in an instance")
	}
}

func TestWhyNotPart(t *testing.T) {
	tests := map[string]struct {
		req Request
		can bool
	}{
		"memory":             {Request{Memory: GiB, GPUs: 1}, true},
		"percent":            {Request{Percent: 10, GPUs: 1}, false},
		"memory and percent": {Request{Memory: GiB, Percent: 10, GPUs: 1}, false},
		"over two":           {Request{Memory: GiB, GPUs: 2}, false},
		"whole":              {Request{Kind: KindWhole, GPUs: 1}, false},
		"an instance":        {Request{Kind: KindMIG, MIG: "3g", GPUs: 1}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if why := tc.req.WhyNotPart(planA + "/3g.40gb@0"); (why == "") != tc.can {
				t.Errorf("part: %q", why)
			}
			if why := tc.req.WhyNotPart(planA); why != "" {
				t.Errorf("a GPU of its own: %q", why)
			}
		})
	}
}
