// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package startcheck

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

const slack = 2 * sharing.MiB

var (
	gpuA = sharing.GPURef{UUID: "GPU-a"}
	gpuB = sharing.GPURef{UUID: "GPU-b"}
)

func own(have sharing.Bytes, err error) Limit {
	return Limit{GPU: gpuA, Desired: 2 * sharing.GiB, Slack: slack, Have: have, Err: err}
}

func other(have sharing.Bytes, err error) Limit {
	return Limit{GPU: gpuB, Desired: slack, Slack: slack, Other: true, Have: have, Err: err}
}

func TestJudge(t *testing.T) {
	lost := fmt.Errorf("read: %w", sharing.ErrLost)
	tests := map[string]struct {
		limits []Limit
		want   error
		words  []string
	}{
		"no limits on this driver": {},
		"as granted":               {limits: []Limit{own(2*sharing.GiB, nil), other(slack, nil)}},
		"rounded down":             {limits: []Limit{own(2*sharing.GiB-slack, nil)}},
		"other GPU at zero":        {limits: []Limit{own(2*sharing.GiB, nil), other(0, nil)}},
		"other GPU lost":           {limits: []Limit{own(2*sharing.GiB, nil), other(0, lost)}},
		"one byte above": {limits: []Limit{own(2*sharing.GiB+1, nil)}, want: sharing.ErrConflict,
			words: []string{"GPU GPU-a", "cap 2GiB"}},
		"cleared to the maximum": {limits: []Limit{own(1<<64-1, nil)}, want: sharing.ErrConflict,
			words: []string{"limit none", "NRI plugin"}},
		"gone": {limits: []Limit{own(0, fmt.Errorf("read: %w", sharing.ErrNotFound))},
			want: sharing.ErrConflict, words: []string{"has no limit"}},
		"below the slack": {limits: []Limit{own(2*sharing.GiB-slack-1, nil)}, want: sharing.ErrConflict},
		"other GPU raised": {limits: []Limit{own(2*sharing.GiB, nil), other(sharing.GiB, nil)},
			want: sharing.ErrConflict, words: []string{"GPU GPU-b", "not part of the grant"}},
		"other GPU gone": {limits: []Limit{other(0, fmt.Errorf("read: %w", sharing.ErrNotFound))},
			want: sharing.ErrConflict},
		"own GPU lost": {limits: []Limit{own(0, lost)}, want: sharing.ErrUnavailable,
			words: []string{"could not be read back"}},
		"no answer": {limits: []Limit{own(2*sharing.GiB, nil), other(0, errors.New("timeout"))},
			want: sharing.ErrUnavailable, words: []string{"timeout"}},
		"raised and unread": {limits: []Limit{own(0, errors.New("timeout")), other(sharing.GiB, nil)},
			want: sharing.ErrConflict},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := Evaluate(tt.limits).Refuse()
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
				t.Fatalf("Refuse() = %v, want %v", err, tt.want)
			}
			for _, w := range tt.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
		})
	}
}

// FuzzJudge compares Evaluate with a naive reading of its rule. A container starts exactly if its own limit was read
// and is from Desired-Slack to Desired. The limit of the other GPU was read and is at most Desired, or the GPU is lost.
func FuzzJudge(f *testing.F) {
	f.Add(uint64(2*sharing.GiB), uint64(slack), uint8(0), uint8(0))
	f.Add(uint64(1)<<63, uint64(1), uint8(1), uint8(2))
	errs := []error{nil, sharing.ErrNotFound, sharing.ErrLost, sharing.ErrUnavailable}
	f.Fuzz(func(t *testing.T, mine, others uint64, e1, e2 uint8) {
		a, b := own(sharing.Bytes(mine), errs[e1%4]), other(sharing.Bytes(others), errs[e2%4])
		good := a.Err == nil && a.Have <= a.Desired && a.Have+a.Slack >= a.Desired &&
			(b.Err == nil && b.Have <= b.Desired || errors.Is(b.Err, sharing.ErrLost))
		if err := Evaluate([]Limit{a, b}).Refuse(); (err == nil) != good {
			t.Errorf("%+v %+v: %v, want a start: %t", a, b, err, good)
		}
	})
}
