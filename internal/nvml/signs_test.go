// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"testing"
	"testing/synctest"
	"time"
)

// signingGPU tells of its health; each count of its links is one more than the one before.
type signingGPU struct {
	device
	counted uint64
}

func (g *signingGPU) signs() Signs { return Signs{} }

func (g *signingGPU) linksUp() *uint64 {
	g.counted++
	n := g.counted
	return &n
}

// NVLinks are counted with a call for each, so they are not counted each time.
func TestLinksAreCountedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := open4test(t, Options{})
		id := gpu(0).id.uuid
		l.known[id] = &signingGPU{}
		for _, step := range []struct {
			after time.Duration
			want  uint64
		}{{0, 1}, {time.Second, 1}, {1900 * time.Millisecond, 1}, {100 * time.Millisecond, 2}, {time.Second, 2},
			{time.Minute, 3}} {
			time.Sleep(step.after)
			s, err := l.Signs(t.Context(), id)
			if err != nil || s.Links == nil || *s.Links != step.want {
				t.Errorf("after %v: %+v, %v, want count %d", step.after, s, err, step.want)
			}
		}
	})
}
