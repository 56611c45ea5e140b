// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGPURef(t *testing.T) {
	in := Instance{Profile: "1g.10gb+me", ID: 20, Start: 3, Size: 1}
	id := in.On(planA)
	if id != (GPURef{planA, InstanceRef{"1g.10gb+me", 3}}) || !id.IsInstance() ||
		id.Device() != (GPURef{UUID: planA}) || id.Device().IsInstance() {
		t.Errorf("%+v of %+v", id, id.Device())
	}
	if g := id.GPU(); g.Ref() != id || !g.Part.None() {
		t.Errorf("an instance of unknown extent: %+v", g)
	}
	for text, want := range map[string]GPURef{planA: {UUID: planA}, planA + "/1g.10gb+me@3": id, "": {}} {
		if got, err := ParseGPURef(text); err != nil || got != want || got.String() != text {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, bad := range []string{planA + "/", planA + "/3g.40gb", planA + "/3g.40gb@", planA + "/3g.40gb@-1",
		planA + "/x@1", "/3g.40gb@1", planA + "/3g.40gb@1/3g.40gb@1"} {
		if got, err := ParseGPURef(bad); !errors.Is(err, ErrInvalid) || got != (GPURef{}) {
			t.Errorf("%s: %+v, %v", bad, got, err)
		}
	}
	sorted := []GPURef{id.Device(), {planA, InstanceRef{"1g.10gb+me", 1}}, id, {planA, InstanceRef{"1g.10gb", 0}},
		{UUID: planB}}
	slices.SortFunc(sorted, GPURef.Compare)
	if !slices.IsSortedFunc(sorted, func(a, b GPURef) int { return strings.Compare(a.String(), b.String()) }) {
		t.Errorf("not in the order of the text forms: %v", sorted)
	}
	shares := Placement{{GPU: id, Memory: GiB}}
	planned := Planned(map[string]string{PlacementAnnotation("c"): PlacementValue(shares)}, "c")
	if d := cmp.Diff([]GPURef{id}, planned.Refs()); d != "" {
		t.Error(d)
	}
	if !shares[0].InInstance() || (Share{GPU: GPURef{UUID: planA}}).InInstance() ||
		!(Share{GPU: GPURef{UUID: planA}, MIG: in}).InInstance() {
		t.Error("which shares lie in an instance")
	}
}

func TestWhyNotInstance(t *testing.T) {
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
			if why := tc.req.InstanceMismatch(Instance{Profile: "3g.40gb", Size: 4}.On(planA)); (why == "") != tc.can {
				t.Errorf("part: %q", why)
			}
			if why := tc.req.InstanceMismatch(GPURef{UUID: planA}); why != "" {
				t.Errorf("its own GPU: %q", why)
			}
		})
	}
}
