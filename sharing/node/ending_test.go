// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
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
	b.SetHealth(gpu.UUID, sharing.HealthUnhealthy, "XID 95")
	b.eventually("the eviction", func() bool { _, e := ears.count("", "hit"); return e > 0 })
	want := "ns/hit: GPU " + gpu.String() + " is unhealthy: XID 95"
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
	b.SetHealth(gpu.UUID, sharing.HealthOK, "")
	if got := b.ends(); len(got) != 1 {
		t.Errorf("after its end the books tell %q", got)
	}
}
