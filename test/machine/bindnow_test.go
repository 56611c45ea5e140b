// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import "testing"

// Hardened machines set LD_BIND_NOW for all programs. Agent and command line start with it, and a command is held to its cap.
func TestBoundAtOnce(t *testing.T) {
	t.Parallel()
	for _, b := range backends() {
		if b.name != "driver" && b.name != "libkerf" {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			m := b.make(t, usualHardware, b.driver, "")
			m.killAgent()
			m.env = append(m.env, "LD_BIND_NOW=1")
			m.startAgent()
			m.ready()
			r := m.run(flags("--memory 2GiB --name now"), load("--alloc 3GiB --step 256MiB --hold 1h"))
			wantLoad(t, r.loads(1)[0], oom, 2*gib-contextT4-256*mib, 2*gib)
			if got := m.grant("now").Level; got != b.level {
				t.Errorf("level %s, want %s", got, b.level)
			}
			checkInvariants(t, m)
			r.end()
		})
	}
}
