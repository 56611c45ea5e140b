// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// BenchmarkCreateContainer is a round trip through NRI: two sockets (the test's runtime has a proxy in front), ttrpc
// and the plugin. The node answers at once.
func BenchmarkCreateContainer(b *testing.B) {
	for name, cdi := range map[string][]string{"guarded": guarded(), "other": nil} {
		b.Run(name, func(b *testing.B) {
			c := newContainerd(b).start()
			p := plug(b, c.socket(), &fakeNode{}).serving(b)
			p.know(specOf("train", memory("main", sharing.ContainerApp, "10")))
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				ctr := containerOf("main", cdi...)
				ctr.Id = fmt.Sprint(i)
				begun := time.Now()
				if _, err := c.create(podOf("train"), ctr); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begun))
			}
			slices.Sort(took)
			for name, of := range map[string]int{"p50-µs": len(took) / 2, "p99-µs": len(took) * 99 / 100} {
				b.ReportMetric(float64(took[of].Nanoseconds())/1000, name)
			}
		})
	}
}
