// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// mixed is a cluster of GPUs with shares and whole grants. Some are in MIG mode, and pods of all kinds wait.
func mixed(t *testing.T, r *rand.Rand) *built {
	b := clusterOf(6, 3, false)
	for n := range b.reports {
		for g := range b.reports[n].GPUs {
			switch kind := r.IntN(8); {
			case kind == 0:
				one := &b.reports[n].GPUs[g]
				one.MIG, one.FreeBytes, one.FreePercent, one.Levels = true, 0, 0, nil
				one.MIGState = &gpunode.MIGState{MemorySlices: 8, Geometry: profiles()}
			case kind < 6:
				for i := range 1 + r.IntN(2) {
					limits, share := memory(1 + r.IntN(39))
					b.pod(t, fmt.Sprint("p", n, g, i), n, g, limits, share)
				}
			}
		}
	}
	for i := range 12 {
		limits, _ := memory(1 + r.IntN(79))
		switch r.IntN(4) {
		case 0:
			limits = map[string]string{sharing.ResourceGPU: fmt.Sprint(1 + r.IntN(3))}
		case 1:
			limits[sharing.ResourcePercent] = fmt.Sprint(1 + r.IntN(100))
		case 2:
			limits = map[string]string{"kerf.dev/mig-1g.10gb": "1"}
		}
		b.pod(t, fmt.Sprint("w", i), -1, 0, limits, gpunode.Share{})
	}
	return b
}

type choice struct {
	Node int
	Plan []scheduler.Planned
	OK   bool
}

func choices(b *built, trial *scheduler.Trial) []choice {
	var out []choice
	for i := range b.Pods {
		if b.Pods[i].Node == "" {
			node, plan, ok := trial.Best(b.Pods[i].Request)
			out = append(out, choice{node, plan, ok})
		}
	}
	return out
}

// A trial answers as the scheduler does. After changes that were taken back, it answers as before.
func TestTrial(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 7))
		b := mixed(t, r)
		b.board()
		trial := b.State.Trial(b.Free, noon())
		fits := 0
		for i := range b.Pods {
			for n, name := range trial.Names() {
				_, got := trial.Fit(b.Pods[i].Request, n)
				if want := b.State.Fit(b.Pods[i].Request, name, noon()).Reason == scheduler.Fits; got != want {
					t.Errorf("seed %d: pod %s on %s: %t, the scheduler says %t", seed, b.Pods[i].Name, name, got, want)
				} else if got {
					fits++
				}
			}
		}
		if fits == 0 {
			t.Errorf("seed %d: nothing fits", seed)
		}
		before := choices(b, trial)
		undo := disturb(b, trial, r)
		choices(b, trial)
		undo()
		if after := choices(b, trial); !reflect.DeepEqual(before, after) {
			t.Errorf("seed %d: after changes that were taken back: %+v, before %+v", seed, after, before)
		}
	}
}

// disturb releases some pods and withholds GPUs. It returns how to take that back.
func disturb(b *built, trial *scheduler.Trial, r *rand.Rand) (undo func()) {
	var back []func()
	for n := range trial.Names() {
		if r.IntN(2) == 0 {
			trial.Withhold(n, []int{0, 2}, true)
			back = append(back, func() { trial.Withhold(n, []int{0, 2}, false) })
		}
	}
	for i := range b.Pods {
		p := &b.Pods[i]
		for n, name := range trial.Names() {
			if held := trial.PodPlacement(n, p.UID); p.Node == name && r.IntN(2) == 0 {
				trial.Release(p.Request, n)
				back = append(back, func() {
					trial.Take(p.Request, n, []scheduler.Planned{{Container: "main", Placement: held}})
				})
			}
		}
	}
	return func() {
		for i := range back {
			back[len(back)-1-i]()
		}
	}
}
