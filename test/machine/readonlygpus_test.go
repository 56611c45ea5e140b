// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// gpuSettings are what an agent can change of a GPU, by the driver's own account.
type gpuSettings struct {
	TimeSlice   string   `json:"time_slice"`
	ComputeMode int      `json:"compute_mode"`
	PowerLimit  uint64   `json:"power_limit_mw"`
	MIG         bool     `json:"mig"`
	Pending     bool     `json:"mig_pending"`
	Instances   []string `json:"mig_instances"`
}

func (m *machine) gpuSettings() []gpuSettings {
	m.t.Helper()
	return decode[[]gpuSettings](m.t, m.gpusim("gpus", "-o", "json").out)
}

// readOnlyPool wants all that an agent can change while GPUs are shared. On r580 that is compute mode EXCLUSIVE_PROCESS
// for MPS.
func readOnlyPool(driver string) string {
	own := map[string]string{"r580": "backends: [driver, mps, libkerf, reactive]",
		"r615": "computeMode: default"}[driver]
	return head + `spec:
  pools:
  - name: default
    ` + own + `
    timeSlice: short
    powerLimitWatts: 300
    migLayouts:
    - {index: [0], migEnabled: true, instances: {1g.10gb: 7}}
    - {index: [1], migEnabled: true}
`
}

// With --gpu-settings=read-only no setting of any GPU changes. What needs a change says so, and memory limits work.
func TestReadOnlyGPUSettings(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"r580", "r615"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: "h100x8", driver: driver, noAgent: true})
			m.env = append(m.env, "PATH="+m.sim+"/bin:"+os.Getenv("PATH")) // with the programs of MPS
			before := m.gpuSettings()
			m.agentFlags = []string{"--gpu-settings=read-only", "--config", m.write(readOnlyPool(driver))}
			m.startAgent()
			m.ready()
			m.wantWarning("time slice, compute mode and power limit are not set as the pool says",
				sharing.ReadOnlySettings)
			m.wantWarning("MIG on GPU "+m.uuid(0), sharing.ReadOnlySettings)
			for _, ask := range []string{"--mig 1g.10gb", "--min-enforcement hardware --memory 1GiB",
				"--mig 1g --gpu-uuid " +
					m.uuid(2)} {
				if said := m.refused(flags(ask)); !strings.Contains(said, sharing.ReadOnlySettings) &&
					!strings.Contains(ask, "--min-enforcement") {
					t.Errorf("%s: %s", ask, said)
				}
			}
			for gpu := range before {
				if got := m.gpu(gpu).Levels; slices.Contains(got, "hardware") {
					t.Errorf("GPU %d offers levels %q, and no MIG instance can be created", gpu, got)
				}
			}
			if said := m.agent.stderr(); !strings.Contains(said,
				`msg="started with read-only GPU settings" unchanged="`+sharing.GPUSettingsNames) {
				t.Errorf("the agent does not say at its start what it leaves: %s", tail(said))
			}
			m.wantDoctor("GPU settings", "read-only", sharing.GPUSettingsNames, "--gpu-settings=manage")
			m.wantDoctor("level hardware", "not possible", sharing.ReadOnlySettings)
			want := map[string]string{"r615": "driver", "r580": "mps"}[driver] // MPS in the compute mode that is there
			r := m.run(flags("--memory 2GiB --gpu-uuid "+m.uuid(3)), load("--alloc 4GiB --step 64MiB --hold 1h"))
			wantLoad(t, r.loads(1)[0], oom, gib, 2*gib)
			if got := r.granted(); got.Backend != want {
				t.Errorf("backend %s, want %s (%s)", got.Backend, want, got.LevelReason)
			}
			if d := cmp.Diff(before, m.gpuSettings()); d != "" {
				t.Errorf("settings of GPUs with a grant (-before +after):\n%s", d)
			}
			r.end()
			m.noGrants()
			m.restartAgent()
			if d := cmp.Diff(before, m.gpuSettings()); d != "" {
				t.Errorf("settings of GPUs (-before +after):\n%s", d)
			}
			checkInvariants(t, m)
		})
	}
}

// An instance that Kerf created before the settings became read-only is still granted, and stays when it is idle.
// Nothing else of MIG is offered.
func TestReadOnlyGPUSettingsKeepInstances(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "h100x8", noAgent: true})
	m.agentFlags = []string{"--config", m.write(layoutPool("    - {index: [0, 1], migEnabled: true}\n"))}
	m.startAgent()
	m.ready()
	m.wantDoctor("GPU settings", "ok", "managed by the agent")
	first := m.run(flags("--mig 3g.40gb --gpu-uuid "+m.uuid(0)), hold())
	first.granted()
	m.agentFlags = append(m.agentFlags, "--gpu-settings=read-only")
	m.restartAgent()
	first.end()
	m.noGrants()
	before := m.gpuSettings()
	for gpu, want := range [][]string{{"hardware"}, nil} {
		if got := m.gpu(gpu).Levels; !slices.Equal(got, want) {
			t.Errorf("GPU %d offers levels %q, want %q", gpu, got, want)
		}
	}
	m.wantDoctor("level hardware", "offered by the agent")
	again := m.run(flags("--mig 3g.40gb"), load("--alloc 1GiB --hold 1h"))
	wantLoad(t, again.loads(1)[0], "", gib, gib)
	if got := again.granted(); got.GPUs[0] != m.uuid(0) {
		t.Errorf("granted on %+v", got.GPUs)
	}
	if said := m.refused(flags("--mig 3g.40gb")); !strings.Contains(said, sharing.ReadOnlySettings) {
		t.Errorf("a second instance: %s", said)
	}
	again.end()
	m.noGrants()
	if d := cmp.Diff(before, m.gpuSettings()); d != "" {
		t.Errorf("settings of GPUs (-before +after):\n%s", d)
	}
}

// wantDoctor wants a check of kerf doctor with these words.
func (m *machine) wantDoctor(check string, parts ...string) {
	m.t.Helper()
	report := decode[struct {
		Checks []struct{ Name, Status, Found, Effect, Fix string }
	}](m.t, m.kerf("doctor", "-o", "json").out)
	for _, c := range report.Checks {
		if c.Name != check {
			continue
		}
		for _, part := range parts {
			if text := strings.Join([]string{c.Status, c.Found, c.Effect, c.Fix}, "\n"); !strings.Contains(text, part) {
				m.t.Errorf("check %q of kerf doctor does not say %q:\n%s", check, part, text)
			}
		}
		return
	}
	m.t.Errorf("kerf doctor has no check %q", check)
}

func TestGPUSettingsFlag(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", noAgent: true, noDriver: true})
	r := call(t, m.env, program("kerf-agent"), "--run-dir", m.base+"/x", "--gpu-settings", "some")
	wantError(t, r, 1, "--gpu-settings", `"some"`, "manage or read-only")
}
