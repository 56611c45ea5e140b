// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Different GPUs of one machine differ by their pool's rules. A change reaches those that are idle at once, and the others
// when those who use them have ended, who are named meanwhile, also by an agent that was started anew.
func TestGPURules(t *testing.T) {
	t.Parallel()
	pool := func(rules ...string) string {
		return head + "spec:\n  pools:\n  - name: default\n    gpus:\n    - " + strings.Join(rules, "\n    - ") + "\n"
	}
	m := newMachine(t, setup{hardware: "t4x4", noAgent: true})
	m.agentFlags = []string{"--config", m.write(pool("{index: [0], sharers: 1}", "{index: [1], mode: whole}", "{index: [2, 3], exclude: true}"))}
	m.startAgent()
	m.ready()
	m.wantRules([]int{0, 1}, nil)
	r := m.run(flags("--name first --memory 4GiB"), hold())
	if got := r.granted().GPUs; !slices.Equal(got, []string{m.state().GPUs[0].UUID}) {
		t.Errorf("a fraction is on %v", got)
	}
	if said := m.refused(flags("--memory 1GiB")); !strings.Contains(said, "shared by 1 already") || !strings.Contains(said, "gives whole alone") {
		t.Errorf("one sharer too many: %s", said)
	}
	reserved := m.state().GPUs[0].Reserved
	m.write(pool("{index: [0], exclude: true}", "{index: [1], memoryReserve: 2GiB, powerLimitWatts: 50}", "{index: [2], powerLimitWatts: 40}"))
	waits := func() error {
		w := m.state().Config.Waiting
		if len(w) != 1 || w[0].Index != 0 || !slices.Equal(w[0].What, []string{"exclude false -> true"}) || len(w[0].For) != 1 {
			return fmt.Errorf("waiting: %+v", w)
		}
		return nil
	}
	eventually(t, "GPU 0 waits", waits)
	m.wantRules([]int{0, 1, 2, 3}, map[int]uint64{0: 70, 1: 50, 2: 40, 3: 70})
	eventually(t, "the reserve", func() error {
		if s := m.state(); s.GPUs[1].Reserved != reserved+2*gib || s.GPUs[0].Reserved != reserved {
			return fmt.Errorf("GPUs %+v", s.GPUs)
		}
		return nil
	})
	m.restartAgent()
	eventually(t, "GPU 0 waits after a restart", waits)
	if said := m.refused(flags("--gpus 4")); !strings.Contains(said, "left to others") {
		t.Errorf("all GPUs: %s", said)
	}
	r.end()
	m.wantRules([]int{1, 2, 3}, nil)
	m.write(pool("{index: [0], powerLimitWatts: 5}"))
	m.wantRules([]int{0, 1, 2, 3}, map[int]uint64{1: 70, 2: 70, 3: 70})
	eventually(t, "the refused power limit is told", func() error {
		if all := strings.Join(m.state().Warnings, "\n"); !strings.Contains(all, "takes 18 to 70 watts") {
			return errors.New(all)
		}
		return nil
	})
}

// wantRules waits until the machine shows these GPUs, and until the driver holds GPUs to so many watts.
func (m *machine) wantRules(shown []int, watts map[int]uint64) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("GPUs %v and limits %v", shown, watts), func() error {
		s := m.state()
		var got []int
		for _, g := range s.GPUs {
			got = append(got, g.Index)
		}
		if !slices.Equal(got, shown) || !s.Ready {
			return fmt.Errorf("ready %v, GPUs %v", s.Ready, got)
		}
		for i, g := range decode[[]struct {
			MW uint64 `json:"power_limit_mw"`
		}](m.t, m.gpusim("gpus", "-o", "json").out) {
			if want, ok := watts[i]; ok && g.MW != want*1000 {
				return fmt.Errorf("GPU %d is held to %d mW", i, g.MW)
			}
		}
		return nil
	})
}
