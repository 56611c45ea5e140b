// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestRecall(t *testing.T) {
	t.Parallel()
	const gib = sharing.GiB
	withLoan := func(n int, freeMemory, withLoan sharing.Bytes) GPUState {
		g := used(n, freeMemory, 100)
		g.Burst = withLoan
		return g
	}
	ask := func(memory sharing.Bytes) sharing.Request { return sharing.Request{Memory: memory, GPUs: 1} }
	half := sharing.Request{Percent: 50, Memory: gib, GPUs: 1}
	for name, tt := range map[string]struct {
		gpus []GPUState
		r    []sharing.Request
		want map[sharing.GPURef]sharing.Bytes // nil where it does not fit at all
	}{
		"it fits as it is": {[]GPUState{withLoan(0, 10*gib, 20*gib)}, []sharing.Request{ask(10 * gib)},
			map[sharing.GPURef]sharing.Bytes{}},
		"free elsewhere": {[]GPUState{withLoan(0, 5*gib, 20*gib), free(1, 80*gib)},
			[]sharing.Request{ask(10 * gib)}, map[sharing.GPURef]sharing.Bytes{}},
		"what is missing": {[]GPUState{withLoan(0, 4*gib, 20*gib)}, []sharing.Request{ask(10 * gib)},
			map[sharing.GPURef]sharing.Bytes{id(0): 6 * gib}},
		"the tighter of two": {[]GPUState{withLoan(0, 4*gib, 50*gib), withLoan(1, 4*gib, 10*gib)},
			[]sharing.Request{ask(10 * gib)}, map[sharing.GPURef]sharing.Bytes{id(1): 6 * gib}},
		"for all of a pod": {[]GPUState{withLoan(0, 4*gib, 20*gib)},
			[]sharing.Request{ask(10 * gib), ask(10 * gib)}, map[sharing.GPURef]sharing.Bytes{id(0): 16 * gib}},
		"not even then": {[]GPUState{withLoan(0, 4*gib, 20*gib)},
			[]sharing.Request{ask(10 * gib), ask(15 * gib)}, nil},
		"compute is no burst": {[]GPUState{withLoan(0, 4*gib, 20*gib)}, []sharing.Request{half, half, half}, nil},
		"over two GPUs": {[]GPUState{withLoan(0, 4*gib, 20*gib), withLoan(1, 10*gib, 0)},
			[]sharing.Request{{Memory: 20 * gib, GPUs: 2}}, map[sharing.GPURef]sharing.Bytes{id(0): 6 * gib}},
		"a whole GPU is not in parts": {[]GPUState{withLoan(0, 4*gib, 76*gib)},
			[]sharing.Request{{Kind: sharing.KindWhole, GPUs: 1}}, nil},
		"two for two whole GPUs": {[]GPUState{free(0, 80*gib)}, []sharing.Request{{Kind: sharing.KindWhole, GPUs: 1},
			ask(gib)}, nil},
	} {
		got, err := Recall(tt.gpus, tt.r)
		if noFit := new(NoFit); tt.want == nil && !errors.As(err, &noFit) {
			t.Errorf("%s: %v, %v, want a NoFit", name, got, err)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, d)
		}
	}
}
