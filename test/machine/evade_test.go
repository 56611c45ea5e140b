// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// evade is a program that counts some memory and allocates the rest past the library.
func (m *machine) evade(counted, rest uint64) []string {
	m.t.Helper()
	path := filepath.Join(m.work, "evade")
	cmd := exec.CommandContext(m.t.Context(), "cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", path,
		"testdata/evade.c", "-ldl")
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("%v\n%s", err, out)
	}
	return []string{path, fmt.Sprint(counted), fmt.Sprint(rest), fmt.Sprint(512 * mib)}
}

// A program that counts and allocates past the library holds three times its cap. The level of its grant drops to what
// is true. Without the reactive backend that is none.
func TestLevelOfAProgramThatEvadesTheLibrary(t *testing.T) {
	t.Parallel()
	for backends, want := range map[string]string{"driver, libkerf, reactive": "reactive", "driver, libkerf": "none"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			m := newPooled(t, "t4x4", "r580", backends, ", onOverCap: warn")
			honest := m.run(flags("--memory 2GiB --name honest"), load("--alloc 1GiB --hold 1h"))
			wantLoad(t, honest.loads(1)[0], "", gib, gib)
			evader := m.run(flags("--memory 4GiB --name evader"), m.evade(64*mib, 12*gib))
			if got := evader.lines(1)[0]; got != fmt.Sprint(12*gib) {
				t.Fatalf("it got %s bytes past the library", got)
			}
			eventually(t, "level "+want, func() error {
				if g := m.grant("evader"); g.Level != want ||
					!strings.Contains(g.LevelReason, "the cap is not enforced") {
					return fmt.Errorf("%+v", g)
				}
				return nil
			})
			if g := m.grant("honest"); g.Level != "userspace" {
				t.Errorf("another grant: %+v", g)
			}
			if !evader.running() {
				t.Error("onOverCap: warn ended it")
			}
		})
	}
}
