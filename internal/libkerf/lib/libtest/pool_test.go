// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// A pool that has what is asked for keeps it: the program of the pattern has 10 GiB and never uses more than 7.
func TestAPoolKeepsItsReservation(t *testing.T) {
	b := start(t, "h200x8", "r580").cap(t, 10*gib)
	steps, want := []string{"gpu:0", "keep"}, []string{"0"}
	for _, size := range []sharing.Bytes{7 * gib, 4 * gib, 5 * gib, 4 * gib, 5 * gib} {
		steps = append(steps, fmt.Sprintf("take:async:%d", size), "reserved", "give", "reserved")
		want = append(want, "0", "7168", "7168")
	}
	if got := b.check(t, steps...); got != strings.Join(want, "|") {
		t.Errorf("%s, want %s", got, strings.Join(want, "|"))
	}
}

// How often the library has the driver trim, in 1,000 allocations. Blocks come and go in an order that a seed gives.
func TestTrimsOfPools(t *testing.T) {
	const chunks = "STUB_CHUNK=33554432" // the pool grows by whole 32 MiB
	for _, test := range []struct {
		step          string
		env           []string
		trims, refuse int
	}{
		{"cycle:1000:700,400,500,400,500", nil, 0, 0},
		{"cycle:1000:700,400,500,400,500", []string{chunks}, 0, 0},
		{"churn:1000:1:128:600", nil, 10, 0},
		{"churn:1000:1:128:600", []string{chunks}, 10, 0},
		{"churn:1000:4:2:900", []string{chunks}, 0, 0},
		{"churn:1000:3:16:900", nil, 100, 10},
	} {
		b := stubbed(t)
		if err := b.region.SetLimit(b.region.Usage()[0].GPU, 1000*mib); err != nil {
			t.Fatal(err)
		}
		var kept, refused, reserved, trims int
		got := b.program(t, test.env, "check/kerfcheck", "gpu:0", "keep", test.step, "reserved", "trims")
		if _, err := fmt.Sscanf(strings.ReplaceAll(got, "|", " "), "%d %d %d %d", &kept, &refused, &reserved,
			&trims); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if kept != 0 || refused > test.refuse || trims > test.trims || reserved == 0 || reserved > 1000 {
			t.Errorf("%s %q: %d refused, want at most %d; %d trims, want at most %d; %d MiB reserved", test.step,
				test.env,
				refused, test.refuse, trims, test.trims, reserved)
		}
	}
}

// A pool may grow by more than the request and serve the rest. It is expected to grow so only as long as it does.
func TestAPoolThatGrowsByMore(t *testing.T) {
	for _, test := range []struct {
		steps []string
		want  string
	}{
		{[]string{"fill:async:2097152", "reserved"}, "496|992"},
		{[]string{"take:async:2097152", "fill:async:67108864", "reserved"}, "0|15|992"},
	} {
		b := stubbed(t)
		if err := b.region.SetLimit(b.region.Usage()[0].GPU, 1000*mib); err != nil {
			t.Fatal(err)
		}
		got := b.program(t, []string{"STUB_CHUNK=33554432"}, "check/kerfcheck",
			append([]string{"gpu:0"}, test.steps...)...)
		if got != test.want {
			t.Errorf("%q: %s, want %s", test.steps, got, test.want)
		}
	}
}
