// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A GPU before Hopper is reset for its MIG mode, which its driver does only while no other process has it open. While
// the agent asks for the mode, a running monitor closes NVML, and DCGM with it, so that it reports no GPU. Afterwards
// it reports all as before.
func TestMonitorClosesTheDriverForAReset(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "a30x2", driver: "r580", noAgent: true})
	m.agentFlags = []string{"--config", m.write(layoutPool("    - {index: [0], migEnabled: false}\n"))}
	m.startAgent()
	m.ready()
	o := m.monitor()
	up := func(want int) error {
		lines := o.scrape("kerf_gpu_up")
		n := 0
		for _, l := range lines {
			if strings.HasSuffix(l, " 1") {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("%q: %s", lines, tail(o.p.stderr()))
		}
		return nil
	}
	o.source("dcgm")
	eventually(t, "two GPUs that tell", func() error { return up(2) })
	m.killAgent()
	m.write(layoutPool("    - {index: [0], migEnabled: true}\n    allowGPUReset: true\n"))
	m.startAgent("KERF_FAILPOINTS=mig-driver=1*sleep(20s)") // in the first call, for which all was let go of
	eventually(t, "no GPU that tells", func() error { return up(0) })
	eventually(t, "two GPUs that tell again", func() error { return up(2) })
	o.source("dcgm")
	eventually(t, "MIG mode", func() error {
		if s := m.state(); !s.Ready || !s.GPUs[0].MIG || s.GPUs[0].Health != "healthy" {
			return errors.Join(fmt.Errorf("%+v", s.GPUs[0]), up(2))
		}
		return nil
	})
}
