// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sim/wire"
)

// must sends one request to GPU 0 that is to succeed.
func (m *machine) must(op wire.Op, args ...uint64) []uint64 {
	m.t.Helper()
	req := wire.Request{Op: op}
	copy(req.Args[:], args)
	r := m.ask(0, req)
	if r.Status != wire.OK {
		m.t.Fatalf("operation %d with %v: %v", op, args, r.Status)
	}
	return r.Vals
}

// devices are all MIG devices of GPU 0, by their UUIDs in order.
func (m *machine) devices() []string {
	m.t.Helper()
	return slices.Sorted(slices.Values(m.cutGPUs()[0].Instances))
}

// An instance with several compute instances made by hand is unmanaged, whether the user created it or divided an idle
// one of Kerf's. Kerf reports it as unmanaged and grants it to no program. Kerf does not destroy it for its age, for
// free capacity or for a layout. Programs on a part of it run on, over restarts of the agent.
func TestMIGDividedByHand(t *testing.T) {
	t.Parallel()
	m := onDemand(t, "h100x8", "1s")
	const profile3g, anywhere = 9, wire.Unknown
	gi := m.must(wire.OpGICreate, profile3g, 4)[0]
	for range 2 {
		m.must(wire.OpCICreate, gi, 1, anywhere)
	}
	theirs := m.devices()
	m.killAgent() // so that the instance is not given back meanwhile
	m.write(demandPool("1h"))
	m.startAgent()
	m.ready()
	if r := m.run(flags("--mig 2g"), load("--alloc 1GiB")).wait(); r.code != 0 {
		t.Fatalf("an instance next to it: %v", r)
	}
	m.noGrants()
	var ours place
	for at := range m.places(0) {
		if at.gi != gi {
			ours = at
		}
	}
	m.must(wire.OpCIDestroy, ours.gi, 0)
	for range 2 {
		m.must(wire.OpCICreate, ours.gi, 1, anywhere)
	}
	all := m.devices()
	if len(theirs) != 2 || len(all) != 4 {
		t.Fatalf("devices %v, then %v", theirs, all)
	}
	stray := m.start(load("--alloc 1GiB --hold 1h"), "CUDA_VISIBLE_DEVICES="+all[0])
	m.write(demandPool("1s")) // and now all that is idle is given back
	check := func(when string) {
		t.Helper()
		eventually(t, "both are reported as someone else's", func() error {
			if r := m.kerf("mig", "status"); strings.Count(r.out, "not made by Kerf") != 2 {
				return fmt.Errorf("%s: %v", when, r)
			}
			return nil
		})
		if r := m.run(flags("--mig 2g"), []string{"sh", "-c", "echo $CUDA_VISIBLE_DEVICES"}).wait(); r.code != 0 ||
			slices.Contains(all, strings.TrimSpace(r.out)) {
			t.Errorf("%s: one who requests such an instance gets another one: %v", when, r)
		}
		if said := m.refused(flags("--mig 3g")); !strings.Contains(said, "Kerf did not make") {
			t.Errorf("%s: where they are in the way: %s", when, said)
		}
		m.noGrants()
		eventually(t, "the instances that were made by hand, and no other", func() error {
			if now := m.devices(); !slices.Equal(now, all) {
				return fmt.Errorf("%s: %v became %v", when, all, now)
			}
			return nil
		})
		if !stray.running() {
			t.Errorf("%s: who runs on one of them has ended", when)
		}
	}
	check("created on demand")
	m.restartAgent()
	check("after a restart")
	places := m.wantCut(0, 2)
	m.write(strings.Replace(demandPool("1s"), "migEnabled: true", "migEnabled: true, instances: {4g: 1, 3g: 1}", 1))
	eventually(t, "a layout that says what it waits for", func() error {
		if said := m.state().Warnings; !slices.ContainsFunc(said,
			func(w string) bool { return strings.Contains(w, "Kerf did not make") }) {
			return fmt.Errorf("%q", said)
		}
		return nil
	})
	if now := m.places(0); !maps.Equal(now, places) || !slices.Equal(m.devices(), all) || !stray.running() {
		t.Errorf("a layout: %v became %v, %v", places, now, m.devices())
	}
}
