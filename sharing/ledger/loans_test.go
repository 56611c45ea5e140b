// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

func TestRecall(t *testing.T) {
	t.Parallel()
	const gib = sharing.GiB
	loan := func(id string, memory, burstNow, used sharing.Bytes) ledger.Burst {
		return ledger.Burst{ID: ledger.GrantID(id), Memory: memory * gib, Burst: burstNow * gib, Used: used * gib,
			Known: true}
	}
	silent := loan("s", 10, 20, 0)
	silent.Known = false
	odd := loan("o", 10, 20, 0)
	odd.Used = 15*gib + 1
	for name, tt := range map[string]struct {
		loans []ledger.Burst
		need  sharing.Bytes
		keep  []sharing.Bytes
		short sharing.Bytes
	}{
		"no burst": {nil, 5 * gib, []sharing.Bytes{}, 5 * gib},
		"all idle": {[]ledger.Burst{loan("a", 10, 20, 3)}, 5 * gib, []sharing.Bytes{15 * gib},
			0},
		"the one with the most idle": {[]ledger.Burst{loan("a", 10, 20, 25), loan("b", 10, 10, 10)}, 5 * gib,
			[]sharing.Bytes{20 * gib, 5 * gib}, 0},
		"of equals the lower id": {[]ledger.Burst{loan("b", 10, 10, 0), loan("a", 10, 10, 0)}, 5 * gib,
			[]sharing.Bytes{10 * gib, 5 * gib}, 0},
		"one and then the next": {[]ledger.Burst{loan("a", 10, 10, 0), loan("b", 10, 20, 0)}, 25 * gib,
			[]sharing.Bytes{5 * gib, 0}, 0},
		"what is used stays": {[]ledger.Burst{loan("a", 10, 20, 25)}, 10 * gib,
			[]sharing.Bytes{15 * gib}, 5 * gib},
		"what is used stays, in whole MiB": {[]ledger.Burst{odd}, 20 * gib, []sharing.Bytes{5*gib + sharing.MiB},
			5*gib + sharing.MiB},
		"more used than it has": {[]ledger.Burst{loan("a", 10, 20, 40)}, 10 * gib,
			[]sharing.Bytes{20 * gib}, 10 * gib},
		"what cannot be known counts as used": {[]ledger.Burst{silent}, gib, []sharing.Bytes{20 * gib}, gib},
	} {
		keep, short := ledger.Recall(tt.loans, tt.need)
		if d := cmp.Diff(tt.keep, keep); d != "" || short != tt.short {
			t.Errorf("%s: short of %s, want %s; kept (-want +got):\n%s", name, short, tt.short, d)
		}
	}
}

// TestLoansAgainstNaive compares both decisions with ones that go MiB by MiB.
func TestLoansAgainstNaive(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 5000 {
		loans := make([]ledger.Burst, rnd.IntN(6))
		most := make([]sharing.Bytes, len(loans))
		for i := range loans {
			loans[i] = ledger.Burst{
				ID:     ledger.GrantID(fmt.Sprint(rnd.IntN(1000), "-", i)),
				Memory: sharing.Bytes(rnd.IntN(5)) * sharing.MiB, Burst: sharing.Bytes(rnd.IntN(9)) * sharing.MiB,
				Used: sharing.Bytes(rnd.Int64N(int64(16 * sharing.MiB))), Known: rnd.IntN(6) > 0,
			}
			most[i] = sharing.Bytes(rnd.Int64N(int64(12 * sharing.MiB)))
		}
		need := sharing.Bytes(rnd.IntN(30)) * sharing.MiB
		keep, short := ledger.Recall(loans, need)
		wantKeep, wantShort := naiveRecall(loans, need)
		if d := cmp.Diff(wantKeep, keep); d != "" || short != wantShort {
			t.Fatalf("round %d: recall %s of %+v: short of %s, want %s (-want +got):\n%s", round, need, loans, short,
				wantShort, d)
		}
		free := sharing.Bytes(rnd.Int64N(int64(40 * sharing.MiB)))
		if d := cmp.Diff(naiveShares(free, most), ledger.Shares(free, most)); d != "" {
			t.Fatalf("round %d: %d among %v (-want +got):\n%s", round, free, most, d)
		}
	}
}

// naiveRecall always takes the next MiB where it took the last one, else where most can be taken.
func naiveRecall(loans []ledger.Burst, need sharing.Bytes) ([]sharing.Bytes, sharing.Bytes) {
	keep := make([]sharing.Bytes, len(loans))
	idle := make([]int64, len(loans))
	for i, l := range loans {
		keep[i] = l.Burst
		for m := int64(1); l.Known && m <= int64(l.Burst/sharing.MiB); m++ {
			if int64(l.Memory+l.Burst)-m*int64(sharing.MiB) >= int64(l.Used) {
				idle[i] = m
			}
		}
	}
	last := -1
	for ; need > 0; need -= sharing.MiB {
		if last < 0 || idle[last] == 0 {
			last = -1
			for i := range loans {
				if idle[i] > 0 && (last < 0 || idle[i] > idle[last] || idle[i] == idle[last] &&
					loans[i].ID < loans[last].ID) {
					last = i
				}
			}
			if last < 0 {
				break
			}
		}
		keep[last] -= sharing.MiB
		idle[last]--
	}
	return keep, need
}

// naiveShares hands out one MiB after the other, in turn.
func naiveShares(free sharing.Bytes, most []sharing.Bytes) []sharing.Bytes {
	out := make([]sharing.Bytes, len(most))
	for {
		before := slices.Clone(out)
		for i := range most {
			if free >= sharing.MiB && out[i]+sharing.MiB <= most[i] {
				out[i] += sharing.MiB
				free -= sharing.MiB
			}
		}
		if slices.Equal(before, out) {
			return out
		}
	}
}
