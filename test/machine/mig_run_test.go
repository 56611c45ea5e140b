// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// demandPool has MIG instances on GPU 0 on demand.
func demandPool(warm string) string {
	return head + "spec:\n  pools:\n  - name: default\n    allowGPUReset: true\n    autoMIGMode: false\n    " +
		"migIdleTTL: " +
		warm + "\n    migLayouts: [{index: [0], migEnabled: true}]\n"
}

// onDemand is a machine whose GPU 0 is created on demand; the others stay as they are.
func onDemand(t *testing.T, hardware, warm string, env ...string) *machine {
	t.Helper()
	m := newMachine(t, setup{hardware: hardware, driver: "r580", noAgent: true})
	m.agentFlags = []string{"--config", m.write(demandPool(warm))}
	m.startAgent(env...)
	m.ready()
	eventually(t, "MIG mode", func() error {
		if s := m.state(); !s.Ready || !s.GPUs[0].MIG || s.GPUs[0].Health != "healthy" {
			return fmt.Errorf("%+v", s.GPUs[0])
		}
		return nil
	})
	return m
}

// The agent creates instances while others run, each program sees its own alone and cannot exceed it, none moves, and
// all go when they are no longer wanted.
func TestRunMIG(t *testing.T) {
	t.Parallel()
	for _, hardware := range []string{"a100x8", "h200x8"} {
		t.Run(hardware, func(t *testing.T) {
			t.Parallel()
			m := onDemand(t, hardware, "1s")
			first := m.run(flags("--mig 1g --name first"), load("--alloc 1GiB --hold 1h"))
			wantLoad(t, first.loads(1)[0], "", gib, gib)
			before := m.wantCut(0, 1)
			second := m.run(flags("--mig 3g --name second"), load("--alloc 1GiB --hold 1h"))
			wantLoad(t, second.loads(1)[0], "", gib, gib)
			s := m.state()
			for _, name := range []string{"first", "second"} {
				if g, ok := s.grant(name); !ok || g.Level != "hardware" || len(g.Shares) != 1 || g.Used == nil ||
					*g.Used < gib {
					t.Errorf("grant %s: %+v", name, g)
				}
			}
			own := m.run(flags("--mig 1g"),
				[]string{"sh", "-c",
					"ls $NVIDIA_DEV_ROOT/dev/nvidia-caps; echo $KERF_LEVEL $CUDA_VISIBLE_DEVICES"}).wait()
			if lines := strings.Fields(own.out); own.code != 0 || len(lines) != 4 || lines[2] != "hardware" ||
				!strings.HasPrefix(lines[3], "MIG-") {
				t.Errorf("what a program sees: %v", own)
			}
			// Whatever it names, it has its own instance, and no more than that.
			for name, change := range map[string]string{"unset": "unset CUDA_VISIBLE_DEVICES; ",
				"another's": "CUDA_VISIBLE_DEVICES=" + only(before) + " "} {
				size := gib
				if name == "another's" {
					size = 0
				}
				got := m.run(flags("--mig 1g"),
					[]string{"sh", "-c", change + "exec " + strings.Join(load("--alloc 1GiB"), " ")}).wait()
				if (size == gib) != (got.code == 0) {
					t.Errorf("%s: %v", name, got)
				}
			}
			big := m.run(flags("--mig 1g"), load("--alloc 30GiB"))
			if l := big.loads(1)[0]; !strings.Contains(l.err(), "OUT_OF_MEMORY") {
				t.Errorf("past the instance: %v", l)
			}
			if said := m.refused(flags("--mig 7g")); !strings.Contains(said, "first") ||
				!strings.Contains(said, "7 compute slices") {
				t.Errorf("no room: %s", said)
			}
			eventually(t, "return of what was idle", func() error {
				if have := m.places(0); len(have) != 2 {
					return fmt.Errorf("%v", have)
				}
				return nil
			})
			after := m.places(0)
			for p, uuid := range before {
				if after[p] != uuid {
					t.Errorf("the neighbour moved: %v, then %v", before, after)
				}
			}
			m.restartAgent()
			if now := m.wantCut(0, 2); !maps.Equal(now, after) || !first.running() || !second.running() {
				t.Errorf("after a restart of the agent: %v, then %v", after, now)
			}
			first.end()
			second.end()
			m.noGrants()
			m.wantCut(0, 0)
			m.run(flags("--mig 7g"), load("--alloc 1GiB --hold 1h")).loads(1)
		})
	}
}

// only is the one UUID of a map.
func only(of map[place]string) string {
	for _, uuid := range of {
		return uuid
	}
	return ""
}

// What cannot be is refused with what the GPU has.
func TestRunMIGRefused(t *testing.T) {
	t.Parallel()
	m := onDemand(t, "a100x8", "1s")
	tests := map[string][]string{
		"--mig 1g.99gb":                              {"did you mean 1g.20gb", "7g.80gb"},
		"--mig smal":                                 {"smal", "1g.10gb", "7g.80gb"},
		"--mig 1c.3g.40gb":                           {"is not the name", "3g.40gb"},
		"--mig 1g --memory 2GiB":                     {"--memory", "--mig"},
		"--mig 1g --percent 10":                      {"--percent", "--mig"},
		"--mig 1g --gpus 2":                          {"--gpus", "--mig"},
		"--mig 1g --min-enforcement exclusive":       {"--min-enforcement", "hardware"},
		"--mig 1g --profile x":                       {"--profile", "--mig"},
		"--mig 1g --gpu-model *H100*":                {"H100"},
		"--memory 200GiB --min-enforcement hardware": {"more than any such profile"},
	}
	for text, want := range tests {
		said := m.refused(flags(text))
		for _, w := range want {
			if !strings.Contains(said, w) {
				t.Errorf("%s: does not say %q: %s", text, w, said)
			}
		}
	}
	r := m.run(flags("--memory 12GiB --min-enforcement hardware"),
		[]string{"sh", "-c", "echo $KERF_LEVEL $KERF_MEMORY_BYTES"}).wait()
	if r.code != 0 || !strings.HasPrefix(r.out, "hardware 2") {
		t.Errorf("memory that the hardware holds: %v", r)
	}
	m.wantCut(0, 0)
}

// The agent is killed between the steps of a creation, or in the middle of one: the neighbor goes on where it is,
// nothing is left over, and the capacity is free again.
func TestRunMIGKilled(t *testing.T) {
	t.Parallel()
	m := onDemand(t, "h100x8", "1s")
	neighbour := m.run(flags("--mig 2g --name neighbour"), load("--alloc 1GiB --hold 1h"))
	neighbour.loads(1)
	before := m.wantCut(0, 1)
	for _, point := range []string{"mig-after-claim", "mig-after-cut", "arm-after-caps"} {
		m.restartAgent("KERF_FAILPOINTS=" + point + "=exit")
		if got := m.run(flags("--mig 1g"), []string{"echo", "ran"}).wait(); got.code != 125 || got.out != "" {
			t.Errorf("%s: %v", point, got)
		}
		m.agentCrashed()
		m.wantCut(0, 1)
	}
	m.set("gpu=0", "latency.gi-create=80ms", "latency.ci-create=80ms")
	for i := range 4 {
		cut := m.run(flags("--mig 3g"), hold())
		time.Sleep(time.Duration(60+i*60) * time.Millisecond)
		m.killAgent()
		cut.end()
		m.startAgent()
		m.ready()
		m.noGrantsBut(1)
		m.wantCut(0, 1)
	}
	if now := m.places(0); !maps.Equal(now, before) || !neighbour.running() {
		t.Errorf("the neighbour was at %v, and is at %v", before, now)
	}
}

// An instance with a stray process is not destroyed, for capacity or for its age, until the process has ended. Other
// grants do not suffer.
func TestMIGStrayProcess(t *testing.T) {
	t.Parallel()
	m := onDemand(t, "h100x8", "1h")
	m.run(flags("--mig 3g"), load("--alloc 1GiB")).wait()
	before := m.wantCut(0, 1)
	stray := m.start(load("--alloc 1GiB --hold 1h"), "CUDA_VISIBLE_DEVICES="+only(before))
	eventually(t, "a stray process on the instance", func() error {
		if r := m.gpusim("processes", "-o", "json"); !strings.Contains(r.out, fmt.Sprint(stray.cmd.Process.Pid)) {
			return fmt.Errorf("%s", r.out)
		}
		return nil
	})
	m.rewrite(demandPool("1s"))
	time.Sleep(4 * time.Second) // longer than it is kept
	if said := m.refused(flags("--mig 7g")); !strings.Contains(said, "7g.80gb") {
		t.Errorf("a GPU that a stray process is on: %s", said)
	}
	if now := m.places(0); !maps.Equal(now, before) || !stray.running() {
		t.Errorf("%v became %v", before, now)
	}
	stray.kill()
	m.wantCut(0, 0)
	m.run(flags("--mig 7g"), load("--alloc 1GiB")).wait()
}

// start runs a program outside Kerf, as root on the machine could.
func (m *machine) start(argv []string, env ...string) *proc {
	m.t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(slices.Clone(m.env), env...)
	p := launch(m.t, m.work, "stray", cmd)
	m.t.Cleanup(p.kill)
	return p
}
