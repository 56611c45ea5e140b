// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
)

// blockers is a GPU on which small instances were created everywhere, and some of them have ended. The rest is busy or
// unmanaged, and the free units between are not adjacent.
func blockers(table *mig.Table, r *rand.Rand) *gpu {
	g := &gpu{table: table, next: 1}
	for range 12 {
		small := slices.DeleteFunc(table.Places(g.occupancy(nil)), func(p mig.Place) bool {
			profile, _ := table.Profile(p.Profile)
			return 2*profile.Size > table.Axis() // half a GPU or less
		})
		if len(small) == 0 {
			break
		}
		g.create(small[r.IntN(len(small))])
		in := &g.have[len(g.have)-1]
		in.CIs, in.Ready, in.Managed = []int{0}, true, r.IntN(5) > 0
		in.Users = []string{fmt.Sprintf("pod %d", in.GI)}
	}
	g.have = slices.DeleteFunc(g.have, func(plan.Instance) bool { return r.IntN(3) == 0 })
	return g
}

// fitTogether tries all places of all of the profiles.
func fitTogether(table *mig.Table, profiles []int, taken []mig.Place) bool {
	if len(profiles) == 0 {
		return true
	}
	p, _ := table.Profile(profiles[0])
	for _, start := range p.Starts {
		with := append(slices.Clip(taken), mig.Place{Profile: p.ID, Start: start})
		if _, err := table.Occupy(with); err == nil && fitTogether(table, profiles[1:], with) {
			return true
		}
	}
	return false
}

// On fragmented GPUs of each kind, an instance is created exactly if it fits. It gets the place that leaves the most
// valuable free units, by trying each. A refusal reports fragmentation exactly if other places of the existing
// instances would let it fit, by trying all their places.
func TestPiecesAgainstBruteForce(t *testing.T) {
	for _, name := range []string{"a30x2", "a100x8", "h100x8", "h200x8", "b200x8", "rtxpro6000x4"} {
		t.Run(name, func(t *testing.T) {
			table := table(t, name)
			values := mig.NewValues(table, nil)
			r := rand.New(rand.NewPCG(21, 5))
			made, full, fragmented := 0, 0, 0
			for range 120 {
				g := blockers(table, r)
				now := g.occupancy(t)
				for _, p := range table.Profiles() {
					made1, err := plan.Make(plan.Request{Table: table, Values: values, Have: g.have,
						Wishes: []plan.Wish{{Profile: p.ID, Start: plan.Any}}})
					if err != nil {
						t.Fatal(err)
					}
					a, best := made1.Answers[0], mig.Value(-1)
					for _, start := range p.Starts {
						if o, ok := table.Try(now, mig.Place{Profile: p.ID, Start: start}); ok {
							best = max(best, values.Of(table.Free(o)))
						}
					}
					if (a.State == plan.Made) != (best >= 0) || len(made1.Steps) != map[bool]int{true: 2}[best >= 0] {
						t.Fatalf("%s on %+v: %+v, worth of what is left %d", p.Name, g.have, made1, best)
					}
					if best >= 0 {
						o, _ := table.Try(now, a.Place)
						if got := values.Of(table.Free(o)); got != best {
							t.Fatalf("%s on %+v goes to %d, which leaves %d and not %d", p.Name, g.have, a.Place.Start,
								got, best)
						}
						made++
						continue
					}
					all := []int{p.ID}
					for _, in := range g.have {
						all = append(all, in.Place.Profile)
					}
					want, word := fitTogether(table, all, nil), "full: "
					if want {
						fragmented, word = fragmented+1, "fragmented: "
					} else {
						full++
					}
					if a.Fragmented != want || !strings.HasPrefix(a.Reason, word) {
						t.Fatalf("%s on %+v: %+v, fragmented: %v", p.Name, g.have, a, want)
					}
				}
			}
			t.Logf("%d made, %d full, %d fragmented", made, full, fragmented)
			if made < 30 || full < 30 || fragmented < 5 {
				t.Errorf("%d made, %d full, %d fragmented: too few to be a test", made, full, fragmented)
			}
		})
	}
}
