// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/faults"
)

// ends are the pods that the books tell of as ending.
func (b *bench) ends() []string {
	var out []string
	for _, e := range b.Books().Ending {
		out = append(out, e.Ref.Namespace+"/"+e.Ref.Pod+": "+e.Why)
	}
	return out
}

// The books tell of the pod that ends for a fault from the moment in which it is asked to, also when it has ended, and of no
// other.
func TestTheBooksTellWhoEndsForAFault(t *testing.T) {
	b, ears, _, gpu := faultBench(t, config.Health{OnFault: config.FaultEvict, Grace: time.Millisecond})
	if got := b.ends(); len(got) > 0 {
		t.Fatalf("before any fault: %q", got)
	}
	b.SetHealth(gpu, sharing.HealthUnhealthy, "XID 95")
	b.eventually("the eviction", func() bool { _, e := ears.count("", "hit"); return e > 0 })
	want := "ns/hit: GPU " + string(gpu) + " is unhealthy: XID 95"
	if got := b.ends(); len(got) != 1 || got[0] != want {
		t.Errorf("the books tell %q, want %q", got, want)
	}
	uid := b.Books().Ending[0].Ref.PodUID
	b.PodGone(uid)
	b.eventually("the end of its claims", func() bool {
		for _, g := range b.Books().Grants {
			if g.Claim.Owner.PodUID == uid {
				return false
			}
		}
		return true
	})
	b.SetHealth(gpu, sharing.HealthOK, "")
	if got := b.ends(); len(got) != 1 {
		t.Errorf("after its end the books tell %q", got)
	}
}

// A pod that was asked to end and need not any more is told of no longer, one that was made to is; and each is forgotten in the
// end.
func TestEndingIsForgotten(t *testing.T) {
	part := []faults.Part{{GPU: "GPU-0", Health: sharing.HealthLost}}
	sick, well := faults.Grant{ID: "1", Group: "pod", Faulty: part}, faults.Grant{ID: "1", Group: "pod"}
	evict, start := faults.Policy{Evict: true}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type look struct {
		p      faults.Policy
		grants []faults.Grant
		after  time.Duration
		there  bool
	}
	for name, tc := range map[string]struct {
		made  bool
		looks []look
	}{
		"faulty":                    {false, []look{{evict, []faults.Grant{sick}, 0, true}, {evict, []faults.Grant{sick}, time.Hour, true}}},
		"well again":                {false, []look{{evict, []faults.Grant{sick}, 0, true}, {evict, []faults.Grant{well}, time.Second, false}}},
		"well again, and made to":   {true, []look{{evict, []faults.Grant{well}, time.Hour, true}, {evict, nil, time.Hour, true}, {evict, nil, time.Hour + endedFor + 1, false}}},
		"the policy was taken back": {false, []look{{faults.Policy{}, []faults.Grant{sick}, 0, false}}},
		"ended":                     {false, []look{{evict, nil, 0, true}, {evict, nil, endedFor, true}, {evict, nil, endedFor + 1, false}}},
		"ended, another is there":   {false, []look{{evict, []faults.Grant{{ID: "2", Group: "other", Faulty: part}}, 0, true}, {evict, []faults.Grant{{ID: "2", Group: "other"}}, endedFor + 1, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(Options{})
			r.ending["pod"] = Ending{Since: start, made: tc.made}
			for i, l := range tc.looks {
				r.keepEnding(l.p, l.grants, start.Add(l.after))
				if _, there := r.ending["pod"]; there != l.there {
					t.Fatalf("look %d: told of: %t, want %t", i, there, l.there)
				}
			}
		})
	}
}
