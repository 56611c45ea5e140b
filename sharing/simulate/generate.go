// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math"
	"math/rand" //nolint:depguard // as in the fill, a list is repeated by its seed

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// Draw makes the list of pods by lot.
type Draw struct {
	// Pods is how many are drawn; each is of a type as often as the type's count is a part of all counts.
	Pods int   `yaml:"pods"`
	Seed int64 `yaml:"seed"`
}

// varySteps is how many sizes a type that varies has. They are few, since clusters see few.
const varySteps = 5

// draw makes pods from one of each type. Equal input gives equal pods.
func (s *Scenario) draw(types []Pod) []Pod {
	//nolint:gosec // nothing secret is drawn
	r := rand.New(rand.NewSource(s.Draw.Seed))
	all := 0
	for _, t := range s.Pods {
		all += max(1, t.Count)
	}
	var pods []Pod
	for k := range s.Draw.Pods {
		at, i := r.Intn(all), 0
		for at >= max(1, s.Pods[i].Count) {
			at -= max(1, s.Pods[i].Count)
			i++
		}
		// The step is drawn for types that do not vary too, so that a change of one type leaves the others.
		p, step := types[i], float64(2*r.Intn(varySteps))/(varySteps-1)-1
		p.Name = fmt.Sprintf("%s-%06d", p.Type, k)
		if by := s.Pods[i].Vary; by > 0 {
			p.vary(1 + by*step)
		}
		pods = append(pods, p)
	}
	return pods
}

// vary makes all amounts but the number of GPUs larger or smaller, to tenths of a core, whole percents and GiB. What
// is whole stays whole, and nothing becomes 0.
func (p *Pod) vary(times float64) {
	step := func(v, unit float64) float64 {
		if v == 0 {
			return 0
		}
		return max(1, math.Round(v*times/unit)) * unit
	}
	p.CPU = cluster.Milli(step(float64(p.CPU), 100))
	p.Memory = sharing.Bytes(step(float64(p.Memory), float64(sharing.GiB)))
	p.GPUMemory = sharing.Bytes(step(float64(p.GPUMemory), float64(sharing.GiB)))
	if p.Share < cluster.WholeGPU {
		p.Share = min(cluster.WholeGPU, cluster.Milli(step(float64(p.Share), 10)))
	}
}
