// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"syscall"
	"testing"
)

// Hardened machines set LD_BIND_NOW for all programs. Agent and command line start with it, and a command is held to
// its cap.
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

// The monitor starts with it, too, and reads DCGM by each kind of engine, and NVML without DCGM.
func TestMonitorBoundAtOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{})
	m.env = append(m.env, "LD_BIND_NOW=1")
	e := hostEngine(t, "127.0.0.2:0")
	for _, by := range []struct {
		flags  []string
		source string
	}{
		{[]string{"--dcgm-engine", "embedded"}, "dcgm"}, {[]string{"--dcgm-engine", e.address}, "dcgm"},
		{[]string{"--dcgm=false"}, "nvml"},
	} {
		o := m.monitor(by.flags...)
		o.source(by.source)
		eventually(t, "the memory of all GPUs", func() error {
			if got := o.scrape("DCGM_FI_DEV_FB_USED"); len(got) != 8 {
				return fmt.Errorf("%q", got)
			}
			return nil
		})
		o.p.signal(syscall.SIGTERM)
		if end := o.p.wait(); end.code != 0 {
			t.Errorf("%q: %v", by.flags, end)
		}
	}
}
