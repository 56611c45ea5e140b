// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

const ms = time.Millisecond

func TestStep(t *testing.T) {
	a, b := Grant{ID: "a", Percent: 10}, Grant{ID: "b", Percent: 90}
	first := Grant{ID: "first", Percent: 30, Priority: 5}
	tests := map[string]struct {
		mode   Mode
		passed time.Duration
		grants []Grant
		seen   map[ID]Seen
		want   []TokenUpdate
	}{
		"no-one": {Fair, period, nil, nil, []TokenUpdate{}},
		"each its share": {
			Strict, period, []Grant{a, b}, map[ID]Seen{"a": {}, "b": {}},
			[]TokenUpdate{{ID: "a", Add: 2 * ms}, {ID: "b", Add: 18 * ms}},
		},
		"a full budget gets nothing, and strict lends nothing": {
			Strict, period, []Grant{a, b}, map[ID]Seen{"a": {}, "b": {Balance: 90 * ms}},
			[]TokenUpdate{{ID: "a", Add: 2 * ms}, {ID: "b"}},
		},
		"fair lends it": { // it has been idle
			Fair, period, []Grant{a, b}, map[ID]Seen{"a": {}, "b": {Balance: 90 * ms}},
			[]TokenUpdate{{ID: "a", Add: 20 * ms, Spare: 18 * ms}, {ID: "b"}},
		},
		"no more than two steps are given away": {
			Fair, period, []Grant{a, b}, map[ID]Seen{"a": {Balance: 35 * ms}, "b": {Balance: 90 * ms}},
			[]TokenUpdate{{ID: "a", Add: 5 * ms, Spare: 5 * ms}, {ID: "b"}},
		},
		"a debt is paid from the share": {
			Fair, period, []Grant{a, b}, map[ID]Seen{"a": {Balance: -500 * ms}, "b": {}},
			[]TokenUpdate{{ID: "a", Add: 2 * ms}, {ID: "b", Add: 18 * ms}},
		},
		"the higher class first": {
			Fair, period, []Grant{a, {ID: "b", Percent: 60}, first}, map[ID]Seen{"a": {}, "b": {Balance: 60 * ms},
				"first": {}},
			[]TokenUpdate{{ID: "a", Add: 2 * ms}, {ID: "b"}, {ID: "first", Add: 18 * ms, Spare: 12 * ms}},
		},
		"within one by share": {
			Fair, period, []Grant{a, {ID: "b", Percent: 60}, {ID: "c", Percent: 30}},
			map[ID]Seen{"a": {}, "b": {Balance: 60 * ms}, "c": {}},
			[]TokenUpdate{{ID: "a", Add: 5 * ms, Spare: 3 * ms}, {ID: "b"}, {ID: "c", Add: 15 * ms, Spare: 9 * ms}},
		},
		"what is unowned is given away": {
			Fair, period, []Grant{a}, map[ID]Seen{"a": {}}, []TokenUpdate{{ID: "a", Add: 20 * ms, Spare: 18 * ms}},
		},
		"nothing itself: what the others leave": {
			Strict, period, []Grant{a, {ID: "b"}, {ID: "c"}}, map[ID]Seen{"a": {}, "b": {}, "c": {}},
			[]TokenUpdate{{ID: "a", Add: 2 * ms}, {ID: "b", Add: 9 * ms}, {ID: "c", Add: 9 * ms}},
		},
		"not seen": {
			Fair, period, []Grant{a, b}, map[ID]Seen{"a": {}},
			[]TokenUpdate{{ID: "a", Add: 2 * ms}, {ID: "b"}},
		},
		"a long sleep counts as the most": {
			Strict, time.Hour, []Grant{b}, map[ID]Seen{"b": {Balance: -10 * time.Second}},
			[]TokenUpdate{{ID: "b", Add: 180 * ms}},
		},
		"time that runs back": {Fair, -period, []Grant{b}, map[ID]Seen{"b": {}}, []TokenUpdate{{ID: "b"}}},
		"one answer of the driver says nothing": {
			Strict, period, []Grant{a}, map[ID]Seen{"a": {Charged: 10 * ms, Requested: true,
				Sampled: Sampled{Window: time.Second, Busy: time.Second, Used: time.Second}}},
			[]TokenUpdate{{ID: "a", Add: 2 * ms, Ran: 10 * ms}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var c Controller
			if tt.mode == Fair {
				for range 6 {
					c.Step(tt.mode, tt.passed, tt.grants, tt.seen)
				}
			}
			if diff := cmp.Diff(tt.want, c.Step(tt.mode, tt.passed, tt.grants, tt.seen)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSharesAreAtMostAll(t *testing.T) {
	for _, percents := range [][]sharing.Percent{{0}, {100, 0, 0}, {90, 90}, {60, 39, 0, 0, 0}, {math.MaxUint32, 1},
		{1, 1, 1}} {
		var grants []Grant
		for _, p := range percents {
			grants = append(grants, Grant{Percent: p})
		}
		var sum share
		for i, s := range shares(grants) {
			if s <= 0 {
				t.Errorf("%v: %d gets %d", percents, i, s)
			}
			sum += s
		}
		if sum > whole {
			t.Errorf("%v: %d in all", percents, sum)
		}
	}
}
