// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An agent that is there before the driver says what it waits for, and becomes ready with it.
func TestAgentBeforeDriver(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", noDriver: true, noAgent: true})
	m.startAgent()
	eventually(t, "status of an agent without a driver", func() error {
		if r := m.kerf("status"); r.code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	if s := m.state(); s.Ready || len(s.NotReady) == 0 || len(s.GPUs) != 0 {
		t.Errorf("without a driver: %+v", s)
	}
	if said := m.refused(flags("--memory 1GiB")); !strings.Contains(said, "NVML") {
		t.Errorf("refused without naming what is missing: %s", said)
	}
	if r := m.kerf("status", "--wait", "ready", "--timeout", "5s"); r.code != 1 || !strings.Contains(r.err, "NVML") {
		t.Errorf("wait for what does not come: %v", r)
	}
	m.startDriver()
	m.ready()
	m.run(flags("--memory 1GiB"), load("--alloc 512MiB --hold 1h")).loads(1)
	checkInvariants(t, m)
}

// notReady waits until the agent says that it takes no grants, and why.
func (m *machine) notReady() string {
	m.t.Helper()
	var why string
	eventually(m.t, "agent that is not ready", func() error {
		s := m.state()
		why = strings.Join(s.NotReady, "; ")
		if s.Ready || why == "" {
			return fmt.Errorf("ready %v, reason %q", s.Ready, why)
		}
		return nil
	})
	return why
}

// A driver that was reloaded has forgotten every cap: nothing is granted until they are back.
func TestCapsComeBackWithTheDriver(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	gate := m.work + "/gate"
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	waiting := m.run(flags("--memory 3GiB --name waiting"),
		append([]string{"sh", "-c", `read go <"$0"; exec "$@"`, gate}, load("--alloc 6GiB --step 128MiB --hold 1h")...))
	whole := m.run(flags("--gpus 1 --name whole"), hold())
	waiting.granted()
	whole.granted()
	checkInvariants(t, m)
	before := held(m.state())
	m.killDriver()
	m.notReady()
	if g := m.grant("waiting"); g.Level != "unknown" || g.LevelReason == "" {
		t.Errorf("no driver answers, and the level is %q (%q)", g.Level, g.LevelReason)
	}
	m.refused(flags("--memory 1GiB"))
	m.startDriver()
	m.ready()
	m.wantSame(before, []*run{waiting, whole})
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	wantLoad(t, waiting.loads(1)[0], oom, 3*gib-contextT4-128*mib, 3*gib-contextT4)
	m.refused(flags("--gpus 3"))
	checkInvariants(t, m)
	if metrics := m.metrics(); !strings.Contains(metrics, "\nkerf_caps_restored_total ") ||
		strings.Contains(metrics, "\nkerf_caps_restored_total 0\n") {
		t.Error("metrics do not tell of restored caps")
	}
}

// A driver that comes back while the agent is down is no different.
func TestDriverAndAgentRestart(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	r := m.run(flags("--memory 3GiB --name kept"), hold())
	r.granted()
	before := held(m.state())
	m.killAgent()
	m.killDriver()
	m.startDriver()
	m.startAgent()
	m.ready()
	m.wantSame(before, []*run{r})
}

// wantHealth waits for the health of one GPU; all others must be healthy then.
func (m *machine) wantHealth(index int, health string) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("GPU %d %s", index, health), func() error {
		for _, g := range m.state().GPUs {
			switch {
			case g.Index != index && g.Health == "suspect" && strings.Contains(g.Reason, "does not answer"):
				return fmt.Errorf("GPU %d answers late: this machine has other things to do", g.Index)
			case g.Index != index && g.Health != "healthy":
				m.t.Fatalf("GPU %d is %s (%s); the fault is on GPU %d", g.Index, g.Health, g.Reason, index)
			case g.Index == index && g.Health != health:
				return fmt.Errorf("it is %s (%s)", g.Health, g.Reason)
			case g.Index == index && health != "healthy" && g.Reason == "":
				m.t.Fatalf("GPU %d is %s without a reason", g.Index, g.Health)
			}
		}
		return nil
	})
}

// A fault marks exactly the GPU that it is on, its grants show it, and all comes back when the GPU does.
func TestFaultMarksExactlyItsGPU(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ fault, health, mend string }{
		"lost without a word": {"lost=true", "lost", "lost=false"},
		"off the bus":         {"xid=79", "lost", "lost=false"},
		"double bit error":    {"xid=48", "unhealthy", "reset=true"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: "t4x4"})
			const bad = 1
			pin := func(i int) string { return " --gpu-uuid " + m.uuid(i) }
			hit := m.run(flags("--memory 2GiB --name hit"+pin(bad)), hold())
			pair := m.run(flags("--memory 4GiB --gpus 2 --name pair"+pin(bad)+pin(2)), hold())
			spared := m.run(flags("--memory 2GiB --name spared"+pin(0)), load("--alloc 1GiB --hold 1h"))
			hit.granted()
			pair.granted()
			spared.loads(1)
			before := held(m.state())

			m.set(fmt.Sprintf("gpu=%d", bad), tt.fault)
			m.wantHealth(bad, tt.health)
			for label, want := range map[string]string{"hit": tt.health, "pair": tt.health, "spared": "healthy"} {
				if g := m.grant(label); g.Health != want {
					t.Errorf("grant %s is %s, want %s", label, g.Health, want)
				}
			}
			if said := m.refused(flags("--memory 1GiB" + pin(bad))); !strings.Contains(said, tt.health) {
				t.Errorf("a grant on the bad GPU is refused with: %s", said)
			}
			meanwhile := m.run(flags("--memory 1GiB --name meanwhile"), load("--alloc 512MiB --hold 1h"))
			if got := meanwhile.granted().GPUs; got[0] == m.uuid(bad) {
				t.Errorf("a grant went to the bad GPU")
			}
			wantLoad(t, meanwhile.loads(1)[0], "", 512*mib, 512*mib)
			checkInvariants(t, m)
			meanwhile.end()
			eventually(t, "end of a grant while a GPU is bad", func() error {
				if _, there := m.state().grant("meanwhile"); there {
					return fmt.Errorf("it is there")
				}
				return nil
			})

			m.set(fmt.Sprintf("gpu=%d", bad), tt.mend)
			m.wantHealth(bad, "healthy")
			m.wantSame(before, []*run{hit, pair, spared})
			m.run(flags("--memory 1GiB"+pin(bad)), load("--alloc 512MiB --hold 1h")).loads(1)
			checkInvariants(t, m)
		})
	}
}

// An attachment that begins while a GPU is lost is kept off it once that is back.
func TestAttachmentFromALostTime(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	m.set("gpu=3", "lost=true")
	m.wantHealth(3, "lost")
	r := m.run(flags("--memory 2GiB"), hold())
	r.granted()
	checkInvariants(t, m)
	m.set("gpu=3", "lost=false")
	m.wantHealth(3, "healthy")
	checkInvariants(t, m) // the least limit is on GPU 3
}

// The agent reports a GPU that is lost at its start, and takes it in when it comes back, whatever else is lost by then.
func TestLostBeforeTheAgentStarts(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	r := m.run(flags("--memory 2GiB --name on-lost --gpu-uuid "+m.uuid(0)), hold())
	r.granted()
	before := held(m.state())
	lost := m.uuid(0)
	m.set("gpu=0", "lost=true")
	m.restartAgent()
	s := m.state()
	if !strings.Contains(strings.Join(s.Warnings, "; "), "index 0") {
		t.Errorf("no warning of the GPU that was left out: %q", s.Warnings)
	}
	for _, g := range s.GPUs {
		if g.UUID == lost && g.Health == "healthy" {
			t.Errorf("the lost GPU is healthy: %+v", g)
		}
	}
	m.refused(flags("--memory 1GiB --gpu-uuid " + lost))
	m.run(flags("--memory 1GiB --placement-policy spread"), load("--alloc 512MiB --hold 1h")).loads(1)
	m.set("gpu=1", "lost=true")
	eventually(t, "GPU 1 lost", func() error {
		if h := m.gpu(1).Health; h != "lost" {
			return fmt.Errorf("it is %s", h)
		}
		return nil
	})
	m.set("gpu=0", "lost=false")
	eventually(t, "GPU 0 back", func() error {
		for _, g := range m.state().GPUs {
			if g.UUID == lost && g.Index == 0 && g.Health == "healthy" && g.Memory > 0 {
				return nil
			}
		}
		return fmt.Errorf("GPUs: %+v", m.state().GPUs)
	})
	m.set("gpu=1", "lost=false")
	eventually(t, "all GPUs", func() error { // taking stock again takes the others away for a moment
		well := 0
		for _, g := range m.state().GPUs {
			if g.Health == "healthy" && g.Memory > 0 {
				well++
			}
		}
		if well != 4 {
			return fmt.Errorf("%d healthy GPUs", well)
		}
		return nil
	})
	m.ready()
	if now := held(m.state())[r.granted().ID]; now.Memory != before[now.ID].Memory || len(now.GPUs) != 1 ||
		now.GPUs[0] != lost {
		t.Errorf("the grant on the lost GPU: %+v, before %+v", now, before[now.ID])
	}
	checkInvariants(t, m)
}

// A fault of an application marks nothing.
func TestApplicationFaultMarksNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	for _, xid := range []string{"13", "31", "43", "45", "94"} {
		m.set("gpu=0", "xid="+xid)
	}
	m.set("gpu=2", "xid=48") // events come in order: once this one is seen, so are those before it
	m.wantHealth(2, "unhealthy")
	m.run(flags("--memory 1GiB --gpu-uuid "+m.uuid(0)), hold()).granted()
	m.set("gpu=2", "reset=true")
	m.wantHealth(2, "healthy")
}

// One GPU that answers late or never delays no request for the others.
func TestSlowGPU(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	r := m.run(flags("--memory 2GiB --name near --gpu-uuid "+m.uuid(0)), load("--alloc 1GiB --hold 1h"))
	r.loads(1)
	uuids := []string{m.uuid(1), m.uuid(2)}
	m.set("gpu=3", "latency=20s")
	eventually(t, "the slow GPU to be shown as such", func() error {
		s := m.state() // answers although GPU 3 does not
		for _, g := range s.GPUs {
			switch slow := g.Index == 3; {
			case slow && (g.Used != nil || g.Health == "healthy"):
				return fmt.Errorf("GPU 3: health %s, use %v", g.Health, g.Used)
			case !slow && (g.Used == nil || g.Health != "healthy"):
				return fmt.Errorf("GPU %d: health %s, use %v", g.Index, g.Health, g.Used)
			}
		}
		if g, ok := s.grant("near"); !ok || g.Used == nil || *g.Used != gib+contextT4 {
			return fmt.Errorf("grant on a GPU that answers: %+v", g)
		}
		return nil
	})
	// the least of some: what else runs on this machine may delay any of them, and the slow GPU would delay each
	took := time.Hour
	for range 3 {
		took = min(took, elapsed(func() { m.state() }))
	}
	if took > 8*time.Second {
		t.Errorf("status took %s: it waited for the slow GPU", took)
	}
	for _, id := range uuids {
		// The slow GPU carries no limit for it until it answers again; the others are not kept from use.
		got := m.run(flags("--memory 1GiB --gpu-uuid "+id), load("--alloc 512MiB")).wait()
		if got.code != 0 {
			t.Errorf("grant with a slow GPU: %v", got)
		}
	}
	m.set("gpu=3", "latency=0s")
	m.wantHealth(3, "healthy")
	checkInvariants(t, m)
}

func elapsed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}
