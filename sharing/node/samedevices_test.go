// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// A race in kubelet gives two pods the same device ids. Ids stand for amounts alone, so the pods come with the same CDI
// names, and with one pod more than the GPUs have memory for. That pod is rejected, and starts after another has ended.
func TestTwoPodsWithTheSameDevices(t *testing.T) {
	b := newPodBench(t)
	b.still()
	var all []*container
	for i := range b.gpus {
		all = append(all, b.run(b.app(fmt.Sprintf("p%d", i), "gpu-memory-gib:70")))
	}
	q := b.app("q", "gpu-memory-gib:70")
	if _, err := b.Inject(t.Context(), q, b.newID()); !errors.Is(err, sharing.ErrExhausted) {
		t.Fatalf("the pod too many: %v", err)
	}
	for _, c := range all {
		b.active(c.ask, c)
		c.limits(map[sharing.GPURef]sharing.Bytes{c.in.Placement[0].GPU: 70 * sharing.GiB})
	}
	b.check()
	first := all[0]
	first.remove()
	b.PodRemoved(first.ask.Ref.PodUID)
	b.eventually("the first pod's end", func() bool {
		b.Reconcile(t.Context())
		return b.grant(first.ask) == nil
	})
	c := b.run(q)
	b.active(q, c)
	if got, want := c.in.Placement[0].GPU, first.in.Placement[0].GPU; got != want {
		t.Errorf("it has %s, want %s, which is free", got, want)
	}
	b.check()
}
