// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

// A fault of an instance is reported to its grant and to no other on the GPU. The instance takes no new grant until a
// report ends the fault.
func TestAFaultOfAnInstanceIsItsHoldersAlone(t *testing.T) {
	b := newMIGBench(t)
	defer b.begin()()
	gpu := b.gpus[0].Ref()
	first, second := sharing.Instance{Profile: "3g", ID: 3, Start: 4, Size: 3},
		sharing.Instance{Profile: "3g", ID: 3, Start: 1, Size: 3}
	b.SetInstanceHealth(gpu.UUID, first, sharing.HealthUnhealthy, "XID 48")
	req := sharing.Request{Kind: sharing.KindMIG, MIG: "3g", GPUs: 1}
	p, err := b.placing().Process(0, req, req, nil)
	if err != nil || p.Placement[0].MIG != second {
		t.Fatalf("with the fault: %+v, %v", p, err)
	}
	health := func(in sharing.Instance) bool {
		_, is := b.Health.Fault(sharing.Share{GPU: gpu, MIG: in})
		return is
	}
	if !health(first) || health(second) || health(sharing.Instance{}) {
		t.Error("whose fault it is")
	}
	if w := strings.Join(b.Conditions.Sentences(conditions.Warns), "; "); !strings.Contains(w,
		"3g@4 is unhealthy: XID 48") {
		t.Errorf("warnings: %q", w)
	}
	b.SetInstanceHealth(gpu.UUID, first, sharing.HealthOK, "")
	if p, err := b.placing().Process(0, req, req, nil); err != nil || p.Placement[0].MIG != first {
		t.Errorf("after the fault: %+v, %v", p, err)
	}
	if left := b.Conditions.Sentences(conditions.Warns); len(left) != 0 {
		t.Errorf("warnings that are over: %q", left)
	}
}

// refusals notes why requests got no instance.
type refusals struct {
	nopObserver
	why []string
}

func (r *refusals) MIGRefused(reason string) { r.why = append(r.why, reason) }

// Each try of a request that no GPU answers is counted, by the reason of the nearest GPU. A successful one is not.
func TestRefusalsAreCounted(t *testing.T) {
	b := newMIGBench(t)
	seen := &refusals{}
	b.opt.Observer = seen
	defer b.begin()()
	for _, tt := range []struct {
		req  sharing.Request
		want string
	}{
		{sharing.Request{Kind: sharing.KindMIG, MIG: "3g", GPUs: 1}, ""},
		{sharing.Request{Kind: sharing.KindMIG, MIG: "9g", GPUs: 1}, "no_such_profile"},
		{sharing.Request{Kind: sharing.KindMIG, MIG: "3g", GPUs: 1, Models: []string{"T4"}}, "not_chosen"},
		{sharing.Request{Kind: sharing.KindMIG, MIG: "3g", GPUs: 1, UUIDs: []sharing.GPUID{b.gpus[1].UUID}},
			"not_in_mig_mode"},
	} {
		seen.why = nil
		_, err := b.Reserve(t.Context(), b.tenant().Peer, "", tt.req)
		if got := strings.Join(slices.Compact(seen.why), " "); got != tt.want || (err == nil) != (tt.want == "") {
			t.Errorf("%+v: counted as %q, %v, want %q", tt.req, got, err, tt.want)
		}
	}
}
