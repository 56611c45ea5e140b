// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sim/wire"
)

// modes are a GPU's MIG modes as the driver has them, current and pending.
func (m *machine) modes(gpu int) string {
	m.t.Helper()
	r := m.ask(gpu, wire.Request{Op: wire.OpMIGMode})
	return fmt.Sprint(r.Vals)
}

// opened is a GPU that another process has open, as a monitor has; it holds nothing there.
func (m *machine) opened(gpu int) (closes func()) {
	m.t.Helper()
	conn, err := net.DialUnix("unixpacket", nil,
		&net.UnixAddr{Name: filepath.Join(m.sim, "dev", fmt.Sprintf("nvidia%d", gpu)), Net: "unixpacket"})
	if err != nil {
		m.t.Fatal(err)
	}
	req, err := wire.Request{Op: wire.OpMIGMode}.Encode()
	if err == nil {
		_, err = conn.Write(req)
	}
	if err == nil {
		_, err = conn.Read(make([]byte, 1<<16))
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return func() {
		if err := conn.Close(); err != nil {
			m.t.Error(err)
		}
	}
}

// wantMIGModes waits until the driver has these modes of GPU 0, and the agent tells of it as that.
func (m *machine) wantMIGModes(want, health, reason string) {
	m.t.Helper()
	eventually(m.t, "MIG modes "+want, func() error {
		s := m.state()
		if got := m.modes(0); got != want || s.GPUs[0].Health != health || !strings.Contains(s.GPUs[0].Reason, reason) {
			return fmt.Errorf("modes %s, %+v, %q", got, s.GPUs[0], s.Warnings)
		}
		return nil
	})
}

// The MIG mode of a GPU before Hopper takes a reset, which the driver's call makes by itself. Without the pool's
// permission the call is not made, and with it the mode is there at once. While another process has the GPU open, or a
// virtual machine has it by passthrough, the mode is pending. Until the reset has come nothing is offered there, with
// the reason.
func TestMIGModeOfAmpere(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "a30x2", driver: "r580", noAgent: true})
	on := "    - {index: [0], migEnabled: true, instances: {2g.12gb: 2}}\n"
	off, leave := "    - {index: [0], migEnabled: false}\n", "    allowGPUReset: true\n"
	m.agentFlags = []string{"--config", m.write(layoutPool(on))}
	m.startAgent()
	m.ready()
	if said := strings.Join(m.state().Warnings, "\n"); !strings.Contains(said, "takes a reset") ||
		!strings.Contains(said, "does not allow") {
		t.Errorf("warnings: %s", said)
	}
	if r := m.kerf("mig", "apply"); !strings.Contains(r.out+r.err, "takes a reset") {
		t.Errorf("mig apply: %v", r)
	}
	m.wantMIGModes("[0 0]", "healthy", "")
	if r := m.run(flags("--memory 4GiB --gpus 2"), load("--alloc 1GiB")).wait(); r.code != 0 {
		t.Errorf("a GPU without leave is shared as before: %v", r)
	}
	m.noGrants()
	m.write(layoutPool(on + leave))
	m.wantMIGModes("[1 1]", "healthy", "")
	m.wantProfiles(0, []uint64{5, 5})
	m.write(layoutPool(off + leave))
	m.wantMIGModes("[0 0]", "healthy", "")

	closes := m.opened(0)
	m.write(layoutPool(on + leave))
	m.wantMIGModes("[0 1]", "unhealthy", "pending")
	if said := m.refused(flags("--memory 4GiB --gpus 2")); !strings.Contains(said, "MIG mode") &&
		!strings.Contains(said, "unhealthy") {
		t.Errorf("a GPU whose mode is pending: %s", said)
	}
	closes()
	m.wantMIGModes("[1 1]", "healthy", "")
	m.wantProfiles(0, []uint64{5, 5})
	closes = m.opened(0)
	m.write(layoutPool(off + leave))
	m.wantMIGModes("[1 0]", "unhealthy", "")
	closes()
	m.wantMIGModes("[0 0]", "healthy", "")

	m.set("gpu=0", "passthrough=true")
	m.write(layoutPool(on + leave))
	m.wantMIGModes("[0 1]", "unhealthy", "reset")
	m.set("gpu=0", "reset=true")
	m.wantMIGModes("[1 1]", "healthy", "")
	m.wantProfiles(0, []uint64{5, 5})
	m.ready()
	eventually(t, "an instance", func() error { // stock may be taken of the GPUs once more
		if r := m.run(flags("--mig 2g"), load("--alloc 1GiB")).wait(); r.code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
}
