// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// ends are the pods that LedgerState reports as terminating.
func (b *bench) ends() []string {
	var out []string
	for _, e := range b.LedgerState().Ending {
		out = append(out, e.Ref.Namespace+"/"+e.Ref.Pod+": "+e.Reason)
	}
	return out
}

// LedgerState reports a pod that ends for a fault from the moment of the request, also after its end. It reports no
// other pod.
func TestTheBooksTellWhoEndsForAFault(t *testing.T) {
	b, ears, _, gpu := faultBench(t, config.Health{OnFault: config.FaultEvict, Grace: time.Millisecond})
	if got := b.ends(); len(got) > 0 {
		t.Fatalf("before any fault: %q", got)
	}
	b.SetHealth(gpu.UUID, sharing.HealthUnhealthy, "XID 95")
	b.eventually("the eviction", func() bool { _, e := ears.count("", "hit"); return e > 0 })
	want := "ns/hit: GPU " + gpu.String() + " is unhealthy: XID 95"
	if got := b.ends(); len(got) != 1 || got[0] != want {
		t.Errorf("the ledger reports %q, want %q", got, want)
	}
	uid := b.LedgerState().Ending[0].Ref.PodUID
	b.PodRemoved(uid)
	b.eventually("the end of its grants", func() bool {
		for _, g := range b.LedgerState().Grants {
			if g.Owner.PodUID == uid {
				return false
			}
		}
		return true
	})
	b.SetHealth(gpu.UUID, sharing.HealthOK, "")
	if got := b.ends(); len(got) != 1 {
		t.Errorf("after its end the ledger reports %q", got)
	}
}
