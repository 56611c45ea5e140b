// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"path/filepath"
	"testing"
)

// oom is the error of a program that wants more than its share.
const oom = "CUDA_ERROR_OUT_OF_MEMORY"

// contextH100 and contextT4 are what a context costs on the simulated GPUs.
const (
	contextH100 = 500 * mib
	contextT4   = 120 * mib
)

// A greedy program is refused at its cap, whatever interface it uses, and its neighbours on the same GPU
// keep what they have and get what is theirs.
func TestGreedyIsRefusedAtItsCap(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{})
	pin := "--gpu-uuid " + m.uuid(0)
	neighbour := m.run(flags("--memory 20GiB --name neighbour "+pin), load("--alloc 18GiB --hold 1h"))
	wantLoad(t, neighbour.loads(1)[0], "", 18*gib, 18*gib)

	for _, api := range []string{"linear", "async", "vmm"} {
		t.Run(api, func(t *testing.T) {
			m := m.in(t)
			greedy := m.run(flags("--memory 4GiB --min-enforcement driver "+pin),
				load("--alloc 8GiB --step 256MiB --hold 1h --api "+api))
			got := greedy.loads(1)[0]
			wantLoad(t, got, oom, 4*gib-contextH100-256*mib, 4*gib-contextH100)
			if got.Total == nil || *got.Total != 4*gib {
				t.Errorf("the program sees a GPU of %v, want its cap as the size", got)
			}
			late := m.run(flags("--memory 10GiB "+pin), load("--alloc 9GiB --step 3GiB --api "+api))
			wantLoad(t, late.loads(1)[0], "", 9*gib, 9*gib)
			if r := late.wait(); r.code != 0 {
				t.Errorf("a neighbour that stays within its share: %v", r)
			}
			if !neighbour.running() {
				t.Error("the neighbour ended")
			}
			checkInvariants(t, m)
			greedy.end()

			// Without --hold, it ends by itself, with the status of a program that met an error.
			brief := m.run(flags("--memory 4GiB "+pin), load("--alloc 8GiB --api "+api))
			if r := brief.wait(); r.code != 9 {
				t.Errorf("greedy gpuload: %v, want exit 9", r)
			}
		})
	}
	if g := m.grant("neighbour"); g.Used == nil || *g.Used != 18*gib+contextH100 {
		t.Errorf("the neighbour's use: %+v", g)
	}
}

// Forked workers share one cap: each asks for half of it, and together they never have more than all.
func TestForksShareOneCap(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{})
	for _, api := range []string{"linear", "async", "vmm"} {
		t.Run(api, func(t *testing.T) {
			m := m.in(t)
			const limit = 16 * gib
			r := m.run(flags("--memory 16GiB"), load("--fork 8 --alloc 8GiB --step 512MiB --hold 1h --api "+api))
			var sum uint64
			refused := 0
			for _, l := range r.loads(8) {
				sum += l.Allocated
				if l.Total != nil { // it has a context
					sum += contextH100
				}
				if l.err() == oom {
					refused++
				} else if l.err() != "" {
					t.Errorf("worker: %v", l)
				}
			}
			if sum > limit || sum < limit-8*512*mib || refused < 7 {
				t.Errorf("workers have %d of %d, %d of 8 were refused", sum, limit, refused)
			}
			checkInvariants(t, m)
			r.end()
			m.noGrants()
		})
	}
}

// A cgroup made inside the grant's changes nothing. Nor do the namespaces that a container engine inside a job makes,
// with or without root.
func TestChildCgroupIsCapped(t *testing.T) {
	t.Parallel()
	const namespaces = "unshare --cgroup --ipc --uts --mount --pid --fork --mount-proc --kill-child "
	for name, engine := range map[string]string{
		"cgroup alone": "", "container": namespaces, "container without root": namespaces + "--user --map-root-user ",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{})
			inChild := fmt.Sprintf(
				`d=%s$(sed -n 's/^0:://p' /proc/self/cgroup)/a; mkdir $d $d/b && echo $$ >$d/b/cgroup.procs && exec %s"$@"`,
				unified(t), engine)
			r := m.run(flags("--memory 6GiB --name nested"), append([]string{"sh", "-ec", inChild, "sh"},
				load("--alloc 12GiB --step 256MiB --hold 1h")...))
			wantLoad(t, r.loads(1)[0], oom, 6*gib-contextH100-256*mib, 6*gib-contextH100)
			g := m.grant("nested")
			found := false
			for _, p := range m.processes() {
				found = found || filepath.Dir(filepath.Dir(p.Cgroup)) == g.Cgroup
			}
			if !found {
				t.Errorf("no process of the driver's is in %s/a/b: %+v", g.Cgroup, m.processes())
			}
			checkInvariants(t, m)
			r.end()
			m.noGrants()
			checkInvariants(t, m)
		})
	}
}
