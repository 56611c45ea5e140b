// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// A container runtime may go on without what Inject gave, because the agent died or was too slow. Such a container has
// no GPU, and its grant is not activated. It does not matter whether the agent finds it by the event, the list, or at
// its next start.
func TestMadeWithoutTheGrant(t *testing.T) {
	tell := map[string]func(b *bench, c *container){
		"event": func(b *bench, c *container) { b.ContainerMade(c.id, "") },
		"other note": func(b *bench, c *container) {
			b.ContainerMade(c.id, b.inject(b.app("q", "gpu-percent:10")).in.Annotation)
		},
		"list": func(b *bench, c *container) {
			s := c.seen()
			s.Annotation = ""
			b.witness(s)
		},
	}
	for name, tell := range tell {
		for _, restarted := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", restarted"}[restarted], func(t *testing.T) {
				b := newPodBench(t)
				b.still()
				ask := b.app("p", "gpu-memory-gib:10")
				c := b.inject(ask)
				note := c.in.Annotation
				c.in.Annotation = "" // So make does not report it.
				c.make()
				if restarted {
					b.still()
				}
				call := c.calls()[0]
				refused(t, b.ActivateContainer(t.Context(), call), sharing.ErrUnavailable, "not yet said")
				tell(b, c)
				refused(t, b.ActivateContainer(t.Context(), call), sharing.ErrNotFound, "made without its grant")
				b.active(ask, nil)
				b.ContainerMade(c.id, note) // This is too late.
				refused(t, b.ActivateContainer(t.Context(), call), sharing.ErrNotFound, "made without its grant")
				c.remove()
				next := b.run(ask)
				b.active(ask, next)
				b.check()
			})
		}
	}
}

// CRI-O runs the hook of a container before it reports the creation through NRI. The hook's note reports it earlier. If
// it is the note of another grant, the container was created without its grant.
func TestNoteOfTheHook(t *testing.T) {
	b := newPodBench(t)
	b.still()
	ask := b.app("p", "gpu-memory-gib:10")
	unreported := func(ask sharing.ContainerRequest) (*container, sharing.HookCall, string) {
		c := b.inject(ask)
		note := c.in.Annotation
		c.in.Annotation = "" // So calls does not report it.
		return c, c.make().calls()[0], note
	}
	c, call, note := unreported(ask)
	refused(t, b.ActivateContainer(t.Context(), call), sharing.ErrUnavailable, "not yet said")
	call.Note = note
	if err := b.ActivateContainer(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	b.active(ask, c)
	b.ContainerMade(c.id, "") // The report of CRI-O comes later and has no annotation.
	b.active(ask, c)

	_, forged, _ := unreported(b.app("q", "gpu-percent:10"))
	forged.Note = note
	refused(t, b.ActivateContainer(t.Context(), forged), sharing.ErrNotFound, "made without its grant")
	forged.Note = ""
	refused(t, b.ActivateContainer(t.Context(), forged), sharing.ErrNotFound, "made without its grant")
	b.check()
}
