// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sim/wire"
)

// cutGPU is the part of gpusim's list of GPUs that shows their instances.
type cutGPU struct {
	MIG       bool     `json:"mig"`
	Instances []string `json:"mig_instances"`
}

func (m *machine) cutGPUs() []cutGPU {
	m.t.Helper()
	return decode[[]cutGPU](m.t, m.gpusim("gpus", "-o", "json").out)
}

// place is an instance as the driver's own socket tells it.
type place struct{ gi, profile, start uint64 }

// ask sends one request to a GPU's socket, as a program of root's would.
func (m *machine) ask(gpu int, req wire.Request) wire.Response {
	m.t.Helper()
	data, err := req.Encode()
	if err != nil {
		m.t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 1<<16)
	n := 0
	if err = unix.Connect(fd, &unix.SockaddrUnix{Name: filepath.Join(m.sim, "dev", fmt.Sprintf("nvidia%d",
		gpu))}); err == nil {
		if _, err = unix.Write(fd, data); err == nil {
			n, err = unix.Read(fd, buf)
		}
	}
	if err != nil {
		m.t.Fatal(err)
	}
	r, err := wire.DecodeResponse(buf[:n])
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

// places are a GPU's instances, and the UUIDs of their devices.
func (m *machine) places(gpu int) map[place]string {
	m.t.Helper()
	r := m.ask(gpu, wire.Request{Op: wire.OpMIGInstances})
	uuids := strings.Split(r.Text, "\n")
	out := map[place]string{}
	for i := range r.Vals[0] {
		v := r.Vals[1+wire.MIGVals*i:]
		out[place{v[0], v[1], v[2]}] = uuids[i]
	}
	return out
}

// byHand makes an instance that is not Kerf's.
func (m *machine) byHand(gpu int, profile, start uint64) {
	m.t.Helper()
	r := m.ask(gpu, wire.Request{Op: wire.OpGICreate, Args: [6]uint64{profile, start}})
	if r.Status == wire.OK {
		r = m.ask(gpu, wire.Request{Op: wire.OpCICreate, Args: [6]uint64{r.Vals[0]}})
	}
	if r.Status != wire.OK {
		m.t.Fatalf("make an instance by hand: status %v", r.Status)
	}
}

// wantCut waits until GPU 0 has so many managed instances in addition to the unmanaged ones, all with their devices.
func (m *machine) wantCut(gpu, n int) map[place]string {
	m.t.Helper()
	var have map[place]string
	eventually(m.t, fmt.Sprintf("%d instances on GPU %d", n, gpu), func() error {
		have = m.places(gpu)
		for _, uuid := range have {
			if uuid == "" {
				return fmt.Errorf("half an instance: %v", have)
			}
		}
		if len(have) != n {
			return fmt.Errorf("%v", have)
		}
		return nil
	})
	return have
}

func layoutPool(entries string) string {
	return head + "spec:\n  pools:\n  - name: default\n    migIdleTTL: 1s\n    migLayouts:\n" + entries
}

// The agent creates a pool's layouts before it grants anything, and follows the config. It leaves unmanaged instances
// alone, and creates the layouts again after a reboot. What cannot be is reported for each GPU while the others go on.
func TestMIGLayouts(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "h100x8", driver: "r580", noAgent: true})
	m.agentFlags = []string{"--config", m.write(
		layoutPool(`    - {index: [0, 1], migEnabled: true, instances: {1g.10gb: 2, 3g.40gb: 1}}
    - {index: [2], migEnabled: true, instances: {1g.99gb: 1}}
    - {index: [3], migEnabled: true, instances: {3g: 3}}
    - {index: [1], deviceFilter: ["0x233010DE"], migEnabled: true, instances: {">= 60GiB": 1}}
`))}
	m.startAgent()
	m.ready()
	first := m.places(0)
	if len(first) != 3 || len(m.places(1)) != 1 {
		t.Fatalf("ready with %v and %v", first, m.places(1))
	}
	said := strings.Join(m.state().Warnings, "\n")
	for _, want := range []string{"1g.10gb+me", "did you mean 1g.20gb", "12 of 8 memory units"} {
		if !strings.Contains(said, want) {
			t.Errorf("warnings do not say %q: %s", want, said)
		}
	}
	if said := m.refused(flags("--gpus 5")); !strings.Contains(said, "MIG mode") {
		t.Errorf("a GPU that is cut was counted as whole: %s", said)
	}
	m.run(flags("--memory 10GiB --gpus 4"), hold()).granted() // the GPUs without MIG mode
	other := filepath.Join(m.work, "other.yaml")
	if err := os.WriteFile(other, []byte(
		layoutPool("    - {index: [1, 4], migEnabled: true, instances: {4g: 1}}\n    - {index: [0], migEnabled: "+
			"false}\n")),
		0o644); err != nil {
		t.Fatal(err)
	}
	if r := m.kerf("mig", "plan", other); r.code != 0 ||
		!strings.Contains(r.out, "destroy 7g.80gb at 0\n  create 4g.40gb at 0") ||
		!strings.Contains(r.out, "set MIG mode off") || !strings.Contains(r.out, "set MIG mode on") {
		t.Errorf("a plan: %v", r)
	}
	if r := m.kerf("mig", "plan"); r.code != 0 || !strings.Contains(r.out, "12 of 8 memory units") {
		t.Errorf("the applied plan: %v", r)
	}
	if r := m.kerf("mig", "status"); r.code != 0 || strings.Count(r.out, "fixed layout") != 4 ||
		strings.Count(r.out, "free") != 4 {
		t.Errorf("mig status: %v", r)
	}
	m.byHand(2, 9, 0)
	m.write(layoutPool("    - {index: [0], migEnabled: true, instances: {1g.10gb: 1, 3g.40gb: 1}}\n    - {index: " +
		"[1], " +
		"migEnabled: false}\n" +
		"    - {index: [2], migEnabled: true, instances: {3g.40gb: 2}}\n    - {index: [3], migEnabled: true}\n"))
	if r := m.kerf("mig", "apply"); r.code != 0 {
		t.Errorf("mig apply: %v", r)
	}
	second := m.wantCut(0, 2)
	for p, uuid := range second {
		if first[p] != uuid {
			t.Errorf("%v was created again: %v, then %v", p, first, second)
		}
	}
	eventually(t, "end of MIG mode on GPU 1", func() error {
		if g := m.cutGPUs()[1]; g.MIG || m.state().GPUs[1].MIG {
			return fmt.Errorf("%+v", g)
		}
		return nil
	})
	foreign := place{1, 9, 0}
	if have := m.places(2); have[foreign] == "" {
		t.Errorf("what was made by hand is gone: %v", have)
	}
	m.wantWarning("Kerf did not make")
	m.killAgent()
	m.set("gpu=0", "reboot=true")
	m.startAgent()
	m.ready()
	if got := m.wantCut(0, 2); len(got) != 2 {
		t.Errorf("after a reboot: %v", got)
	}
}

// Killed at any moment of a change, the agent ends at the layout, with nothing left over, and the neighbours on the GPU
// stay what they were.
func TestMIGLayoutKilled(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "a30x2", driver: "r580", noAgent: true})
	two := layoutPool("    - {index: [0], migEnabled: true, instances: {2g.12gb: 2}}\n")
	mixed := layoutPool("    - {index: [0], migEnabled: true, instances: {1g.6gb: 2, 2g.12gb: 1}}\n")
	m.agentFlags = []string{"--config", m.write(strings.Replace(two, "    migLayouts:",
		"    allowGPUReset: true\n    migLayouts:", 1))}
	m.startAgent()
	m.ready()
	m.wantCut(0, 2)
	m.set("gpu=0", "latency.gi-create=60ms", "latency.ci-create=60ms", "latency.gi-destroy=60ms",
		"latency.ci-destroy=60ms")
	for round := range 8 {
		text, n := mixed, 3
		if round%2 == 1 {
			text, n = two, 2
		}
		m.killAgent()
		m.write(text)
		m.startAgent()
		time.Sleep(time.Duration(100+round*70) * time.Millisecond)
		m.killAgent()
		m.startAgent()
		m.ready()
		m.wantCut(0, n)
	}
}
