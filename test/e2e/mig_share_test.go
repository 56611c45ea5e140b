// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// shareInstance has the agent create one instance on GPU 7 of which shares are given, at that level at best, and
// returns its id in the ledger.
func (e *testCase) shareInstance(rules, level string) string {
	e.Helper()
	e.nowRules(cutRules(e, rules, "{index: [7], migEnabled: true, instances: {3g.40gb: 1}, shared: true}", ""))
	prefix := e.node.gpus(e.T)[7].UUID + "/3g.40gb@"
	var id string
	eventually(e, "a shared instance in the ledger", func() error {
		s, err := e.status()
		if err != nil || !s.Ready {
			return fmt.Errorf("ready %t, %q: %w", s.Ready, s.NotReady, errors.Join(err))
		}
		i := slices.IndexFunc(s.GPUs, func(g gpu) bool {
			return strings.HasPrefix(g.UUID, prefix) && g.Health == "healthy" && len(g.Levels) > 0 &&
				g.Levels[0] == level
		})
		if i < 0 {
			return fmt.Errorf("GPUs %+v", s.GPUs)
		}
		id = s.GPUs[i].UUID
		return nil
	})
	return id
}

// An instance whose layout shares it: pods have shares of its memory, and each sees one MIG device at the size of that
// share. The library refuses more to a pod, or the reactive backend kills it, while its neighbor runs on. The ledger
// and the GPUNode show all of that, and a full instance counts as full.
func TestMIGShared(t *testing.T) {
	e := beginWithAgent(t)
	rules := e.readRules()
	t.Cleanup(func() {
		e.nowRules(cutRules(e, rules, "{index: [7], migEnabled: false}", ""))
		eventually(e, "an end of MIG mode", func() error { return e.modes(false) })
		e.writeRules(rules)
	})
	part := e.shareInstance(rules, "userspace")
	gpu := e.node.gpus(t)[7].UUID
	in := func(name string, n int, run string) *pod { return e.create(e.pinnedTo(gpu, one(name, gibs(n), run))) }
	const devices = "; ls /dev/nvidia-caps | sed 's/^/cap /'; echo device $CUDA_VISIBLE_DEVICES"
	neighbour := in("neighbour", 16, "exec gpuload --json --alloc 14GiB --hold 1h")
	greedy := in("greedy", 8, "gpuload --json --alloc 6GiB; gpuload --json --alloc 12GiB; gpuload --json --gpu 1"+
		devices+"; "+hold)
	neighbour.running()
	greedy.running()
	before := neighbour.id("main")
	if l := neighbour.loads("main", 1)[0]; l.Error != nil || l.Total == nil || *l.Total != 16*gib {
		t.Errorf("14 GiB of its 16: %v", l)
	}
	l := greedy.loads("main", 3)
	if l[0].Error != nil || l[0].Total == nil || *l[0].Total != 8*gib || l[1].Error == nil || l[2].Error == nil {
		t.Errorf("6 GiB of 8, 12 GiB, a second device: %v", l)
	}
	greedy.logged("main", "device MIG-")
	if log := greedy.logs("main"); strings.Count(log, "cap nvidia-cap") != 2 {
		t.Errorf("its capability nodes: %s", log)
	}
	if one, two := e.visible(neighbour), e.visible(greedy); one != two {
		t.Errorf("they are on %s and %s", one, two)
	}
	e.sharesOf(part, "userspace", map[*pod]uint64{neighbour: 16 * gib, greedy: 8 * gib})
	full := in("full", 20, hold)
	full.event("not enough free for 20GiB")
	if o := full.get(); o.Status.Phase != corev1.PodPending || len(full.seen) > 0 {
		t.Errorf("a pod that has no room ran: %s", describe(o))
	}
	full.delete()
	greedy.delete()
	if neighbour.id("main") != before {
		t.Error("the neighbour was started again")
	}
	neighbour.delete()
	eventually(e, "an instance that no one has", func() error { return e.sharesError(part, "", nil) })

	// Where only a watch holds shares, who is over its own is ended.
	watched := strings.NewReplacer("backends: [driver, libkerf, reactive]", "backends: [driver, reactive]",
		"minEnforcement: userspace", "minEnforcement: reactive").Replace(rules)
	if watched == rules {
		t.Fatalf("the rules name no backends: %s", rules)
	}
	part = e.shareInstance(watched, "reactive")
	quiet := in("quiet", 6, "exec gpuload --json --alloc 4GiB --hold 1h")
	quiet.running()
	quiet.loads("main", 1)
	over := in("over", 6, "exec gpuload --json --alloc 9GiB --hold 1h")
	over.phase(corev1.PodFailed)
	e.sharesOf(part, "reactive", map[*pod]uint64{quiet: 6 * gib})
	if l := quiet.loads("main", 1)[0]; l.Error != nil || l.Total == nil || *l.Total < 6*gib {
		t.Errorf("the neighbour: %v", l)
	}
	over.delete()
	quiet.delete()
	eventually(e, "an instance that no one has", func() error { return e.sharesError(part, "", nil) })
}

// sharesOf waits until the ledger and the GPUNode have exactly these shares of an instance, at that level.
func (e *testCase) sharesOf(part, level string, want map[*pod]uint64) {
	e.Helper()
	eventually(e, "shares of "+part, func() error { return e.sharesError(part, level, want) })
}

func (e *testCase) sharesError(part, level string, want map[*pod]uint64) error {
	s, err := e.status()
	if err != nil {
		return err
	}
	sum, found := uint64(0), 0
	for _, g := range s.Grants {
		if len(g.Shares) != 1 || g.Shares[0].GPU != part {
			continue
		}
		found++
		for p, memory := range want {
			if g.Pod == p.name && (g.Memory != memory || g.Level != level || g.Namespace != p.namespace) {
				return fmt.Errorf("%s has %+v", p.name, g)
			}
		}
	}
	for _, memory := range want {
		sum += memory
	}
	i := slices.IndexFunc(s.GPUs, func(g gpu) bool { return g.UUID == part })
	if found != len(want) || i < 0 || s.GPUs[i].Granted != sum {
		return fmt.Errorf("%d shares of %+v, want %d of %d bytes", found, s.GPUs, len(want), sum)
	}
	n, err := e.gpuNode()
	if err != nil {
		return err
	}
	claims := 0
	for _, c := range n.Grants {
		for p, memory := range want {
			if c.Pod == p.name && c.Namespace == p.namespace && c.Level == level && len(c.Shares) == 1 &&
				c.Shares[0].GPU == part && c.Shares[0].MemoryBytes == memory {
				claims++
			}
		}
	}
	for _, g := range n.GPUs {
		if g.UUID == part && g.GrantedBytes == sum && g.FreeBytes+g.GrantedBytes+g.BurstBytes == g.AllocatableBytes &&
			claims == len(want) {
			return nil
		}
	}
	return fmt.Errorf("the GPUNode has %d of %d grants, and %+v", claims, len(want), n.GPUs)
}
