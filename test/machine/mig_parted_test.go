// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// partedConfig has NVIDIA's mig-parted divide GPU 0 and leave the others whole.
const partedConfig = `version: v1
mig-configs:
  halves:
  - {devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 2}}
  - {devices: [1, 2, 3, 4, 5, 6, 7], mig-enabled: false, mig-devices: {}}
  empty:
  - {devices: [0], mig-enabled: true, mig-devices: {}}
  - {devices: [1, 2, 3, 4, 5, 6, 7], mig-enabled: false, mig-devices: {}}
  sevenths:
  - {devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 7}}
  - {devices: [1, 2, 3, 4, 5, 6, 7], mig-enabled: false, mig-devices: {}}
`

// partedMachine shows mig-parted what it reads outside of the driver's library: GPUs on the PCI bus, and a loaded
// kernel module.
const partedMachine = `mkdir "$0/proc" && mount -t proc proc "$0/proc" && mount -t tmpfs pci /sys/bus/pci/devices
for gpu in $1; do
	d=/sys/bus/pci/devices/$gpu
	mkdir $d && echo 0x10de >$d/vendor && echo 0x030200 >$d/class && echo 0x2330 >$d/device && echo -1 >$d/numa_node
	echo 0x0000000000000000 0x0000000000000000 0x0000000000000000 >$d/resource
done
mount -t tmpfs modules /proc && echo nvidia 1 0 - Live 0x0000000000000000 >/proc/modules
for e in self thread-self mounts filesystems sys stat; do ln -s "$0/proc/$e" /proc/$e; done
shift
exec "$@"`

// parted starts mig-parted; the returned function waits for its end, and says what it printed and whether it succeeded.
func (m *machine) parted(config string) (wait func() (string, bool)) {
	m.t.Helper()
	dir, err := os.MkdirTemp(m.work, "parted-")
	if err != nil {
		m.t.Fatal(err)
	}
	file := dir + "/config.yaml"
	if err := os.WriteFile(file, []byte(partedConfig), 0o644); err != nil {
		m.t.Fatal(err)
	}
	var gpus []string
	for _, g := range decode[struct {
		GPUs []struct {
			PCI string `json:"pci"`
		} `json:"gpus"`
	}](m.t, m.kerf("status", "-o", "json").out).GPUs {
		gpus = append(gpus, strings.ToLower(g.PCI))
	}
	cmd := exec.CommandContext(m.t.Context(), "unshare", "--mount", "sh", "-ec", partedMachine, dir,
		strings.Join(gpus, " "),
		toolkit(m.t, "nvidia-mig-parted"), "apply", "--skip-reset", "-f", file, "-c", config)
	cmd.Env = m.env
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	return func() (string, bool) {
		err := cmd.Wait()
		return said.String(), err == nil
	}
}

// TestMIGPartedAtTheSameTime runs NVIDIA's mig-parted while Kerf grants instances of the same GPU. An instance that a
// program uses stays. Kerf grants none that mig-parted made, and says so.
func TestMIGPartedAtTheSameTime(t *testing.T) {
	t.Parallel()
	m := onDemand(t, "h100x8", "1s")
	used := m.run(flags("--mig 1g --name used"), load("--alloc 1GiB --hold 1h"))
	used.loads(1)
	if said, ok := m.parted("halves")(); ok || !strings.Contains(said, "ERROR_IN_USE") {
		t.Errorf("while an instance is in use: succeeded %v: %s", ok, said)
	}
	if g := m.grant("used"); !used.running() || g.Level != "hardware" {
		t.Errorf("the program runs: %v, %+v", used.running(), g)
	}
	used.end()
	m.noGrants()
	for round := range 4 {
		config := []string{"halves", "sevenths"}[round%2]
		var r *run
		if round >= 2 {
			r = m.run(flags("--mig 2g"), load("--alloc 1GiB"))
		}
		wait := m.parted(config)
		if round < 2 {
			r = m.run(flags("--mig 2g"), load("--alloc 1GiB"))
		}
		said, ok := wait()
		end := r.wait() // its instance may be gone that it had not opened yet
		t.Logf("round %d: mig-parted %s: %v; kerf run: %d", round, config, ok, end.code)
		if !ok && !strings.Contains(said, "ERROR_") {
			t.Errorf("round %d: %s", round, said)
		}
		m.noGrants()
		checkInvariants(t, m)
		m.wantTheirs(config)
		if said, ok := m.parted("empty")(); !ok {
			t.Fatalf("round %d: empty: %s", round, said)
		}
		m.wantForeign(0)
	}
}

// wantTheirs has mig-parted apply a config alone, and requires that Kerf gives none of its instances away.
func (m *machine) wantTheirs(config string) {
	m.t.Helper()
	if said, ok := m.parted(config)(); !ok {
		m.t.Fatalf("mig-parted %s, alone: %s", config, said)
	}
	m.wantForeign(map[string]int{"halves": 2, "sevenths": 7}[config])
	if said := m.refused(flags("--mig 2g")); !strings.Contains(said, "Kerf did not make") {
		m.t.Errorf("where they are in the way: %s", said)
	}
}

// wantForeign waits until GPU 0 has so many instances that Kerf did not make, and no other, and the agent shows them.
func (m *machine) wantForeign(n int) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("%d instances that Kerf did not make", n), func() error {
		if s := m.kerf("mig", "status"); strings.Count(s.out, "not made by Kerf") != n || len(m.places(0)) != n {
			return fmt.Errorf("%v", s)
		}
		return nil
	})
}
