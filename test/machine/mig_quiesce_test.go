// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A GPU before Hopper is reset for its MIG mode, which its driver does only while nobody else has it open: while the agent asks
// for the mode, a monitor that runs beside it closes NVML, and DCGM with it, so that it tells of no GPU, and afterwards it
// tells of all as before.
func TestMonitorClosesTheDriverForAReset(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "a30x2", driver: "r580", noAgent: true})
	m.agentFlags = []string{"--config", m.write(layoutPool("    - {gpus: [0], enabled: false}\n"))}
	m.startAgent()
	m.ready()
	o := m.monitor()
	up := func(want int) error {
		lines := o.scrape("kerf_device_up")
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
	m.write(layoutPool("    - {gpus: [0], enabled: true}\n    migReset: true\n"))
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
