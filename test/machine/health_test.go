// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// auditLog is the agent's audit log as text.
func (m *machine) auditLog() string {
	m.t.Helper()
	paths, err := filepath.Glob(m.dir + "/audit/audit-*.jsonl")
	if err != nil {
		m.t.Fatal(err)
	}
	var all strings.Builder
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			m.t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

// wantAudited waits for an entry that the expression describes.
func (m *machine) wantAudited(expr string) {
	m.t.Helper()
	re := regexp.MustCompile(expr)
	eventually(m.t, "audited: "+expr, func() error {
		if log := m.auditLog(); !re.MatchString(log) {
			return fmt.Errorf("the log is\n%s", log)
		}
		return nil
	})
}

// If the pool says so, Kerf asks a process on a faulty GPU to end, and kills it after the grace period if it does not.
// Processes on other GPUs go on. Uncorrected errors make a GPU suspect, and end no process. All of it is in the audit
// log, which is complete.
func TestFaultsEndWhatRunsOnThem(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", noAgent: true})
	config := m.write(head + "spec:\n  pools: [{name: default, health: {onFault: evict, gracePeriod: 1s}}]\n")
	m.agentFlags = append(m.agentFlags, "--config", config)
	m.startAgent()
	m.ready()
	pin := func(i int) string { return " --gpu-uuid " + m.uuid(i) }
	polite := m.run(flags("--memory 2GiB --name polite"+pin(1)), hold())
	deaf := m.run(flags("--memory 2GiB --name deaf"+pin(1)),
		[]string{"sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done"})
	spared := m.run(flags("--memory 2GiB --name spared"+pin(0)), hold())
	for _, r := range []*run{polite, deaf, spared} {
		r.granted()
	}
	deaf.lines(1)
	m.set("gpu=0", "ecc.uncorrected=3")
	m.wantAudited(`"type":"health".*"reason":"suspect: memory errors`)
	m.wantAudited(`(?s)"reason":"suspect: memory errors.*"reason":"healthy"`)
	m.set("gpu=1", "xid=31")
	m.set("gpu=1", "xid=48")
	for _, r := range []*run{polite, deaf} {
		eventually(t, "end of what runs on the faulty GPU", func() error {
			if r.running() {
				return fmt.Errorf("%d runs", r.pid())
			}
			return nil
		})
	}
	m.wantAudited(`"type":"fault".*"name":"deaf".*killed: GPU ` + m.uuid(1) + ` is unhealthy: XID 48`)
	if !spared.running() || strings.Contains(m.auditLog(), `"type":"fault","subject":{"uid":0,"pid":`+
		fmt.Sprint(spared.pid())) {
		t.Error("what runs on another GPU was ended")
	}
	if g := m.grant("spared"); g.Health != "healthy" {
		t.Errorf("the spared grant is %s", g.Health)
	}
	out := m.metrics()
	for _, want := range []string{`kerf_gpu_xids_total{class="application",gpu_uuid="` + m.uuid(1) + `",xid="31"} 1`,
		`kerf_gpu_xids_total{class="critical",gpu_uuid="` + m.uuid(1) + `",xid="48"} 1`} {
		if !strings.Contains(out, want) {
			t.Errorf("metrics have no %s", want)
		}
	}
	if r := m.kerf("audit", "verify"); r.code != 0 || !strings.Contains(r.out, "are whole") {
		t.Errorf("kerf audit verify: %v", r)
	}
	m.killAgent()
	m.startAgent()
	m.ready()
	m.wantAudited(`"type":"start".*the agent started`)
	if r := m.kerf("audit", "verify"); r.code != 0 {
		t.Errorf("kerf audit verify after a crash: %v", r)
	}
}

// What a GPU tells of itself goes through the whole way, from the driver to the state, and back: memory rows, and
// NVLinks that are down.
func TestSignsOfHealth(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{})
	m.set("gpu=1", "remap.pending=true")
	m.wantAudited(`"gpu":"` + m.uuid(1) + `".*"reason":"suspect: a memory row is to be remapped`)
	m.set("gpu=1", "reset=true")
	m.set("gpu=2", "links.down=2")
	m.wantAudited(`"gpu":"` + m.uuid(2) + `".*"reason":"suspect: 16 of 18 NVLinks are up`)
	m.set("gpu=2", "links.down=0")
	for _, i := range []int{1, 2} {
		m.wantAudited(`(?s)"gpu":"` + m.uuid(i) + `"[^\n]*"reason":"suspect.*"gpu":"` + m.uuid(i) +
			`"[^\n]*"reason":"healthy"`)
	}
	m.set("gpu=4", "remap.failed=true")
	m.wantAudited(`"gpu":"` + m.uuid(4) + `".*"reason":"unhealthy: a memory row is bad`)
	// One that answers late, on a machine that has other things to do, is suspected for that alone.
	if regexp.MustCompile(`"gpu":"` + m.uuid(5) + `"}],"reason":"(suspect: [^d]|unhealthy|lost)`).MatchString(
		m.auditLog()) {
		t.Error("a GPU with which nothing is wrong is suspected")
	}
}

// A GPU that fails answers later and later, and is lost in the end. Programs on another one run on, and new ones begin
// as soon as Kerf has found that it does not answer.
func TestAGPUThatFailsSlowly(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	before := m.run(flags("--memory 2GiB --name before --gpu-uuid "+m.uuid(2)), load("--alloc 1GiB --hold 1h"))
	before.loads(1)
	m.set("gpu=1", "latency=8s", "ramp=4s")
	t.Cleanup(func() { m.gpusim("set", "gpu=1", "latency=0s") })
	m.wantAudited(`"gpu":"` + m.uuid(1) + `".*"reason":"suspect: does not answer`)
	r := m.run(flags("--memory 2GiB --name after --gpu-uuid "+m.uuid(2)), load("--alloc 1GiB --hold 1h"))
	wantLoad(t, r.loads(1)[0], "", gib, gib)
	m.set("gpu=1", "xid=79")
	m.wantAudited(`"gpu":"` + m.uuid(1) + `".*"reason":"(lost|unhealthy)`)
	eventually(t, "the others are healthy", func() error {
		for _, g := range m.state().GPUs {
			if (g.Health == "healthy") != (g.Index != 1) {
				return fmt.Errorf("GPU %d is %s: %s", g.Index, g.Health, g.Reason)
			}
		}
		return nil
	})
	if len(m.state().Grants) != 2 {
		t.Errorf("the grants are %+v", m.state().Grants)
	}
}

// A GPU whose driver calls hang is suspect, then unhealthy, and says so. The others are served meanwhile: they are
// well, and new programs get and use them. It comes back by itself.
func TestAGPUThatHangs(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	m.set("gpu=1", "latency=8s") // far longer than a probe waits
	t.Cleanup(func() { m.gpusim("set", "gpu=1", "latency=0s") })
	m.wantAudited(`"gpu":"` + m.uuid(1) + `".*"reason":"suspect: does not answer`)
	for i := range 3 {
		r := m.run(flags(fmt.Sprintf("--memory 2GiB --name n%d --gpu-uuid %s", i, m.uuid(2))),
			load("--alloc 1GiB --hold 1h"))
		wantLoad(t, r.loads(1)[0], "", gib, gib)
	}
	eventually(t, "one that is not well, and three that are", func() error {
		for _, g := range m.state().GPUs {
			if (g.Health == "healthy") != (g.Index != 1) {
				return fmt.Errorf("GPU %d is %s: %s", g.Index, g.Health, g.Reason)
			}
		}
		return nil
	})
	m.set("gpu=1", "latency=0s")
	m.wantHealth(1, "healthy")
	m.run(flags("--memory 2GiB --gpu-uuid "+m.uuid(1)), load("--alloc 1GiB --hold 1h")).loads(1)
}
