// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// sharing/ledger/testdata/nofit.txt has the whole texts of refusals. Here is what callers decide by.
func TestNoFit(t *testing.T) {
	t.Parallel()
	const gib = sharing.GiB
	sick := free(0, 80*gib)
	sick.GPU.Health, sick.GPU.HealthReason = sharing.HealthLost, "XID 79"
	unseen := GPUState{GPU: sharing.GPU{UUID: id(0).UUID, Index: -1, HealthReason: "not in the inventory"}, InUse: true}
	shut := used(0, 70*gib, 70)
	shut.Shut = "runs MPS"
	bare, unknown, lost := at(0, sharing.LevelExclusive, sharing.LevelNone), at(0), at(0)
	bare.LevelReason, unknown.LevelReason = "driver: too old", "driver: no answer"
	lost.GPU.Health = sharing.HealthLost
	tests := map[string]struct {
		gpus  []GPUState
		r     sharing.Request
		is    error
		parts []string
	}{
		"no GPU": {nil, sharing.Request{Percent: 1, GPUs: 1}, sharing.ErrUnsupported,
			[]string{"this node has no GPU"}},
		"held": {[]GPUState{used(0, gib, 0)}, sharing.Request{Memory: 2 * gib, GPUs: 1},
			sharing.ErrExhausted, []string{"the one GPU that can give it has not enough free now",
				"GPU 0 (NVIDIA H100): 1GiB free of 80GiB, 2GiB requested"}},
		"burst": {[]GPUState{func() GPUState { g := used(0, gib, 0); g.Burst = 5 * gib; return g }()},
			sharing.Request{Memory: 2 * gib, GPUs: 1}, sharing.ErrExhausted,
			[]string{"1GiB free of 80GiB and 5GiB used as burst memory by other grants, 2GiB requested"}},
		"compute": {[]GPUState{used(0, 20*gib, 10)}, sharing.Request{Memory: 2 * gib, Percent: 20, GPUs: 1},
			sharing.ErrExhausted, []string{"10% of compute free, 20% requested"}},
		"shut": {[]GPUState{shut}, sharing.Request{Memory: gib, GPUs: 1}, sharing.ErrExhausted,
			[]string{"GPU 0 (NVIDIA H100): runs MPS"}},
		"divided": {[]GPUState{used(0, gib, 0), used(1, gib, 0)}, sharing.Request{Memory: 2 * gib, GPUs: 1},
			sharing.ErrExhausted, []string{"none of the 2 GPUs", "2GiB are free in total, but not on one GPU"}},
		"lost comes back": {[]GPUState{sick}, sharing.Request{Memory: gib, GPUs: 1}, sharing.ErrExhausted,
			[]string{"is lost: XID 79"}},
		"unseen may come": {[]GPUState{unseen}, sharing.Request{Memory: gib, GPUs: 1}, sharing.ErrExhausted,
			[]string{"is unknown: not in the inventory"}},
		"too large": {[]GPUState{free(0, 80*gib)}, sharing.Request{Memory: 81 * gib, GPUs: 1}, sharing.ErrUnsupported,
			[]string{"no GPU has 81GiB (largest: 80GiB); request at most 80GiB of each GPU",
				"has 80GiB in all, 81GiB requested"}},
		"too large for those named": {[]GPUState{free(0, 80*gib), free(1, 90*gib)},
			sharing.Request{Memory: 81 * gib, GPUs: 1, UUIDs: []sharing.GPUID{free(0, gib).GPU.UUID}},
			sharing.ErrUnsupported, []string{"no GPU that the request names has 81GiB (largest: 80GiB)"}},
		"too many": {[]GPUState{free(0, 80*gib), free(1, gib)}, sharing.Request{Memory: 4 * gib, GPUs: 2},
			sharing.ErrUnsupported, []string{"only 1 of this node's 2 GPUs can give 4GiB over 2 GPUs, 2 needed"}},
		"level": {[]GPUState{free(0, 80*gib)}, sharing.Request{Memory: gib, GPUs: 1, MinLevel: sharing.LevelExclusive},
			sharing.ErrUnsupported, []string{"at level driver at most, exclusive required: request a whole GPU"}},
		"not enforced": {[]GPUState{bare}, sharing.Request{Memory: gib, GPUs: 1}, sharing.ErrUnsupported, []string{
			"no GPU of this node can give 1GiB of one GPU",
			"no backend enforces shares of this GPU (driver: too old); set minEnforcement: none on the pool"}},
		"too weak": {[]GPUState{bare}, sharing.Request{Memory: gib, GPUs: 1, MinLevel: sharing.LevelReactive},
			sharing.ErrUnsupported, []string{"at level none at most, reactive required (driver: too old)"}},
		"unknown level": {[]GPUState{unknown}, sharing.Request{Memory: gib, GPUs: 1}, sharing.ErrExhausted, []string{
			"the enforcement level of every GPU that can give 1GiB of one GPU is unknown now",
			"the enforcement level of its shares is unknown (driver: no answer); set minEnforcement: none"}},
		"unknown, driver required": {[]GPUState{unknown},
			sharing.Request{Memory: gib, GPUs: 1, MinLevel: sharing.LevelDriver}, sharing.ErrExhausted,
			[]string{"at level unknown at most, driver required"}},
		"unknown, hardware required": {[]GPUState{unknown},
			sharing.Request{Memory: gib, GPUs: 1, MinLevel: sharing.LevelHardware}, sharing.ErrUnsupported,
			[]string{"request a whole GPU"}},
		"lost, level unknown": {[]GPUState{lost}, sharing.Request{Memory: gib, GPUs: 1}, sharing.ErrExhausted,
			[]string{"is lost"}},
		"model": {[]GPUState{free(0, 80*gib)}, sharing.Request{Memory: gib, GPUs: 1, Models: []string{"*T4*"}},
			sharing.ErrUnsupported, []string{`not one of those requested (["*T4*"])`}},
		"uuid": {[]GPUState{free(0, 80*gib)}, sharing.Request{Memory: gib, GPUs: 1, UUIDs: []sharing.GPUID{id(1).UUID}},
			sharing.ErrUnsupported, []string{"is not one of the UUIDs"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Choose(tt.gpus, tt.r)
			noFit := new(NoFit)
			if !errors.Is(err, tt.is) || !errors.As(err, &noFit) ||
				noFit.Never != errors.Is(tt.is, sharing.ErrUnsupported) || len(noFit.GPUs) > len(tt.gpus) {
				t.Fatalf("error %v, want %v", err, tt.is)
			}
			for _, part := range tt.parts {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is missing in:\n%v", part, err)
				}
			}
			if strings.Contains(noFit.Summary, "\n") {
				t.Errorf("summary has several lines: %q", noFit.Summary)
			}
		})
	}
}

// One sentence has the reason where it is that of all GPUs.
func TestSentence(t *testing.T) {
	sentence := func(gpus ...GPUState) string {
		_, err := Choose(gpus, sharing.Request{Memory: sharing.GiB, GPUs: 1})
		no, ok := errors.AsType[*NoFit](err)
		if !ok {
			t.Fatalf("error %v", err)
		}
		return no.Sentence()
	}
	bare, weak := at(0, sharing.LevelNone), at(1, sharing.LevelNone)
	if got := sentence(bare, weak); !strings.Contains(got,
		"can give 1GiB of one GPU: no backend enforces shares of this GPU; set minEnforcement") {
		t.Errorf("one reason: %q", got)
	}
	weak.LevelReason = "driver: too old"
	if got := sentence(bare, weak); !strings.HasSuffix(got, "no GPU of this node can give 1GiB of one GPU") {
		t.Errorf("two reasons: %q", got)
	}
}

func TestRanges(t *testing.T) {
	for want, in := range map[string][]int{"": nil, "4": {4}, "0-1": {0, 1}, "0-3,5,7-8": {0, 1, 2, 3, 5, 7, 8}} {
		if got := ranges(in); got != want {
			t.Errorf("%v: %q, want %q", in, got, want)
		}
	}
}
