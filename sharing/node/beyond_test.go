// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

func (b *bench) beyondTold() string {
	b.t.Helper()
	b.changed.announce() // a new picture
	var all []string
	for _, w := range b.State(b.t.Context()).Warnings {
		if strings.Contains(w, "its processes hold") {
			all = append(all, w)
		}
	}
	return strings.Join(all, "\n")
}

// Memory that the driver's limit does not count is reported.
func TestBeyondTheDriversLimit(t *testing.T) {
	b := newBench(t)
	b.start()
	p := b.tenant()
	a := b.activate(p, "", gib(4))
	gpu := a.Own[0].Ref()
	b.driver.put(gpu, []gpudriver.ProcessUse{gibs(p, 4)})
	if got := b.beyondTold(); got != "" {
		t.Errorf("at its cap: %q", got)
	}
	b.driver.put(gpu, []gpudriver.ProcessUse{gibs(p, 6)})
	if got := b.beyondTold(); !strings.Contains(got, "hold 6GiB of GPU") || !strings.Contains(got, "its cap is 4GiB") ||
		!strings.Contains(got, "what another grant made") {
		t.Errorf("with memory of another: %q", got)
	}
	b.driver.put(gpu, []gpudriver.ProcessUse{{PID: p.PID, Used: 6 * sharing.GiB}})
	if got := b.beyondTold(); got != "" {
		t.Errorf("when it is not known: %q", got)
	}
	p.end()
}

// Memory that a program uses and the library does not count is reported if no reactive backend checks it.
func TestBeyondWhatIsCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		watched bool
		held    int
		told    bool
	}{
		"a context more":    {held: 5},
		"more than that":    {held: 6, told: true},
		"seen by the watch": {watched: true, held: 6},
	} {
		t.Run(name, func(t *testing.T) {
			pool := preloading
			if tc.watched {
				pool = both
			}
			g := newPreloaded(t, pool)
			p, _ := g.share(4)
			g.holds(gibs(p, tc.held))
			if got := g.bench.beyondTold(); strings.Contains(got, "put reactive behind libkerf") != tc.told {
				t.Errorf("reported %q, want %t", got, tc.told)
			}
		})
	}
}
