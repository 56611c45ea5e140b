// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// goldenScenarios are the machines and events whose visible results are frozen, by the name of their file.
func goldenScenarios() map[string]func(t *testing.T, name string) {
	return map[string]func(t *testing.T, name string){
		"idle-r615": func(t *testing.T, name string) { goldenIdle(t, name, "r615") },
		"idle-r580": func(t *testing.T, name string) { goldenIdle(t, name, "r580") },
		"driver":    goldenDriver, "libkerf": goldenLibkerf, "mps": goldenMPS, "reactive": goldenReactive,
		"none": goldenNone,
		"mig":  goldenMIG, "burst": goldenBurst, "orphan": goldenOrphan, "faults": goldenFaults,
		"driver-ends": goldenDriverEnds,
		"config":      goldenConfig, "read-only": goldenReadOnly, "quota": goldenQuota,
		"lost-checkpoint": goldenLostCheckpoint,
		"rejected":        goldenRejected, "monitor": goldenMonitor,
	}
}

// pooled is a machine whose one pool has these fields.
func pooled(t *testing.T, hardware, driver, fields, more string, agentFlags ...string) *machine {
	t.Helper()
	m := newMachine(t, setup{hardware: hardware, driver: driver, noAgent: true})
	m.agentFlags = append([]string{"--config", m.write(head + "spec:\n  pools:\n  - {name: default" + fields + "}\n" +
		more)}, agentFlags...)
	m.startAgent()
	m.ready()
	return m
}

// pin are the flags for a GPU.
func (m *machine) pin(index int) string { return " --gpu-uuid " + m.uuid(index) }

// ends ends all programs, and compares what is left.
func (v *visible) ends() {
	v.t.Helper()
	for _, r := range v.runs {
		r.end()
	}
	v.noGrants()
	v.step("all ended", v.audit())
}

// An agent without grants. Here are also all metrics that are 0, their help, and the bounds of histograms.
func goldenIdle(t *testing.T, name, driver string) {
	m := newMachine(t, setup{hardware: "t4x4", driver: driver})
	v := m.visible(name)
	v.step("ready", section{"all metrics", func() (string, error) { return v.exposition(nil) }}, v.audit())
	if driver == "r615" {
		return // the driver counts contexts
	}
	v.measured()
	v.step("context measured", section{"sizes of contexts",
		func() (string, error) { return v.textOf(filepath.Join(v.dir, contextsFile)) }})
}

// Each form of a request on a driver with memory limits, and a restart of the agent.
func goldenDriver(t *testing.T, name string) {
	v := newMachine(t, setup{hardware: "t4x4"}).visible(name)
	memory := v.shows("memory", "--memory 4GiB"+v.pin(0), load("--alloc 3GiB --hold 1h"))
	percent := v.shows("percent", "--percent 50"+v.pin(0), hold())
	whole := v.shows("whole", "--gpus 1"+v.pin(1), load("--alloc 1GiB --hold 1h"))
	two := v.shows("two", "--memory 6GiB --gpus 2"+v.pin(2)+v.pin(3), hold())
	memory.loads(1)
	whole.loads(1)
	v.step("four grants", v.sees(memory), v.sees(percent), v.sees(whole), v.sees(two))
	v.restartAgent()
	v.step("agent restarted")
	v.ends()
}

// libkerf on a driver without memory limits: a program within its cap, one that met its cap, and one with compute time.
func goldenLibkerf(t *testing.T, name string) {
	v := newMachine(t, setup{hardware: "a30x2", driver: "r580"}).visible(name)
	within := v.shows("within", "--memory 6GiB"+v.pin(0), load("--alloc 5GiB --hold 1h"))
	greedy := v.shows("greedy", "--memory 4GiB"+v.pin(0), load("--alloc 6GiB --step 256MiB --hold 1h"))
	percent := v.shows("percent", "--percent 25"+v.pin(1), hold())
	within.loads(1)
	greedy.loads(1)
	v.step("three grants", v.sees(within), v.sees(greedy), v.sees(percent))
	v.restartAgent()
	v.step("agent restarted")
	v.ends()
}

// MPS on a driver without memory limits.
func goldenMPS(t *testing.T, name string) {
	v := newMPSOn(t, "a30x2", "r580", "driver, mps, reactive", "").visible(name)
	memory := v.shows("memory", "--memory 4GiB"+v.pin(0), load("--alloc 3GiB --hold 1h"))
	percent := v.shows("percent", "--percent 25"+v.pin(1), hold())
	memory.loads(1)
	v.step("two grants", v.sees(memory), v.sees(percent))
	v.ends()
}

// A program over its cap that the pool warns of, one without a grant, and the kill when the pool says so.
func goldenReactive(t *testing.T, name string) {
	v := newPooled(t, "a30x2", "r580", "driver, reactive", ", onOverCap: warn").visible(name)
	over := v.shows("over", "--memory 4GiB"+v.pin(0), load("--alloc 6GiB --hold 1h"))
	over.loads(1)
	unmanaged := exec.Command(program("gpuload"), load("--alloc 1GiB --hold 1h --gpu 1")[1:]...)
	unmanaged.Env = v.env
	p := begin(t, v.work, "unmanaged", unmanaged)
	v.scrub.Call("PID", fmt.Sprint(p.pid()), "PID-unmanaged")
	p.lines(1)
	v.wantWarning("holds more than its 4GiB")
	v.wantWarning("GPU 1 is used by processes without a grant")
	v.wantAudited(`unmanaged: process [0-9]+`) // a sample later, which a quick kill would prevent
	v.step("over the cap", v.sees(over))
	v.rewrite(watched(", onOverCap: kill, onUnmanagedProcess: kill"))
	wantKilled(t, over.run)
	p.wait()
	v.ends()
}

// A grant that nothing enforces.
func goldenNone(t *testing.T, name string) {
	v := pooled(t, "a30x2", "r580", ", backends: [driver], minEnforcement: none", "").visible(name)
	open := v.shows("open", "--memory 4GiB --min-enforcement none"+v.pin(0), load("--alloc 8GiB --hold 1h"))
	open.loads(1)
	v.step("over its size", v.sees(open))
	v.ends()
}

// Instances that are created on demand, also after a restart of the agent, and destroyed when they are idle.
func goldenMIG(t *testing.T, name string) {
	v := onDemand(t, "a30x2", "1s").visible(name)
	one := v.shows("one", "--mig 1g", load("--alloc 1GiB --hold 1h"))
	one.loads(1)
	v.step("one instance", v.sees(one))
	two := v.shows("two", "--mig 2g", hold())
	v.restartAgent()
	v.step("two instances, agent restarted", v.sees(two))
	one.end()
	two.end()
	v.noGrants()
	v.wantCut(0, 0)
	v.ends()
}

// Burst memory that is given, and taken back for another grant.
func goldenBurst(t *testing.T, name string) {
	v := pooled(t, "a30x2", "r615", "",
		"  profiles:\n  - {name: burst, memory: 4GiB, maxBurstMemory: 12GiB}\n"+
			"  - {name: small, memory: 1GiB, percent: 10}\n").visible(name)
	gate := filepath.Join(v.work, "gate")
	burst := v.shows("burst", "--profile burst"+v.pin(0), later(gate, load("--alloc 6GiB --hold 1h")))
	small := v.shows("small", "--profile small"+v.pin(1), hold())
	eventually(t, "burst memory", func() error {
		if v.gpu(0).Burst != 8*gib {
			return errors.New("none yet")
		}
		return nil
	})
	touch(t, gate)
	burst.loads(1)
	v.step("burst memory is given", v.sees(burst), v.sees(small))
	big := v.shows("big", "--memory 16GiB"+v.pin(0), hold())
	v.step("memory is taken back", v.sees(big))
	v.ends()
}

// Memory of a process that has ended, which its forked children keep.
func goldenOrphan(t *testing.T, name string) {
	v := newPooled(t, "a30x2", "r580", "driver, libkerf, reactive", ", onOverCap: kill").visible(name)
	tr := v.trainer("orphan", v.pin(0), "1536MiB", "wait")
	v.wantUsed("orphan", 3*gib/2, 2*gib)
	tr.die()
	v.looks(10)
	v.wantWarning("belongs to processes that have ended")
	v.step("the process has ended")
	for _, pid := range tr.loaders() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	v.wantUsed("orphan", 0, 0)
	tr.goOn()
	tr.wait()
	v.ends()
}

// A lost GPU, one with memory errors and one with a fault that only a reset ends, with grants on them.
func goldenFaults(t *testing.T, name string) {
	v := newMachine(t, setup{hardware: "a30x2"}).visible(name)
	for i, grant := range []string{"lost", "broken"} {
		r := v.shows(grant, "--memory 2GiB"+v.pin(i), load("--alloc 1GiB --hold 1h"))
		r.loads(1)
	}
	v.set("gpu=0", "lost=true")
	v.set("gpu=1", "xid=48")
	v.step("two faults")
	for _, r := range v.runs {
		r.end()
	}
	v.noGrants()
	v.set("gpu=0", "lost=false")
	v.set("gpu=1", "reset=true")
	for i := range 2 {
		eventually(t, "health of the GPU", func() error {
			if g := v.gpu(i); g.Health != "healthy" {
				return fmt.Errorf("%+v", g)
			}
			return nil
		})
	}
	v.ends()
}

// The driver ends under a grant, and comes back.
func goldenDriverEnds(t *testing.T, name string) {
	v := newMachine(t, setup{hardware: "a30x2"}).visible(name)
	r := v.shows("kept", "--memory 3GiB"+v.pin(0), hold())
	v.killDriver()
	v.notReady()
	v.withoutDriver = true
	if !r.running() {
		t.Fatalf("the program has ended: %v", r.wait())
	}
	v.step("no driver")
	v.startDriver()
	v.ready()
	v.withoutDriver = false
	v.step("driver is back")
	r.end()
	v.noGrants() // the audit log depends on whether the agent notices the driver's end or the loss of its GPUs first
}

// A config that is applied, one of which a part waits for a grant, one that is rejected, and the last known good one.
func goldenConfig(t *testing.T, name string) {
	m := newMachine(t, setup{hardware: "t4x4", noAgent: true})
	pool := func(rules string) string {
		return head + "spec:\n  pools:\n  - name: default\n    memoryReserve: 1GiB\n    gpuRules: [" + rules +
			"]\n  profiles:\n  - {name: small, memory: 1GiB}\n"
	}
	m.agentFlags = []string{"--config", m.write(
		pool("{index: [0], maxSharesPerGPU: 2}, {index: [1], mode: whole}, {index: [3], excluded: true}"))}
	m.startAgent()
	m.ready()
	v := m.visible(name)
	held := v.shows("held", "--profile small"+v.pin(0), hold())
	v.step("applied", v.sees(held))
	v.write(pool("{index: [0], excluded: true}, {index: [1], memoryReserve: 2GiB, powerLimitWatts: 50}, {index: [2], " +
		"powerLimitWatts: 5}"))
	eventually(t, "the other GPUs have their rules, with limits in the driver, and GPU 0 waits", func() error {
		s, limits := v.state(), v.limits()
		if len(s.Config.Waiting) != 1 || len(s.GPUs) != 4 || s.GPUs[1].Reserved < 2*gib || len(limits) != 4 {
			return fmt.Errorf("%+v, limits %+v", s, limits)
		}
		return nil
	})
	v.restartAgent() // a reading of a GPU whose rules change at that moment leaves a warning
	v.step("waits for the grant")
	v.write(head + "spec:\n  pools: [{name: default, colour: red, overcommit: {memory: lots}}]\n")
	v.wantMistakes("colour")
	v.step("rejected")
	v.restartAgent()
	v.wantMistakes("colour")
	v.step("rejected, agent restarted")
	held.end()
	v.noGrants()
	v.restartAgent()
	v.ends()
}

// GPU settings that the agent may not change.
func goldenReadOnly(t *testing.T, name string) {
	v := pooled(t, "a30x2", "r580", ", timeSlice: short, autoMIGMode: true", "", "--gpu-settings=read-only").visible(
		name)
	r := v.shows("share", "--memory 2GiB"+v.pin(0), hold())
	v.step("a share", v.sees(r))
	v.ends()
}

// A user at the quota.
func goldenQuota(t *testing.T, name string) {
	m := newQuotaUsers(t, "r615", "{grants: 2, memory: 10GiB}")
	v := m.visible(name)
	first := m.holds(ann, "--memory 4GiB --name first"+v.pin(0))
	second := m.holds(ann, "--memory 5GiB --name second"+v.pin(1))
	rejected := func(request string) section {
		said := m.starts(ann, request, "true").wait().err
		return section{"rejected " + request, func() (string, error) { return v.scrub.Text(said), nil }}
	}
	v.step("two grants", rejected("--memory 7GiB"), rejected("--memory 1GiB"))
	first.end()
	m.freed(ann, 1)
	v.step("one grant", rejected("--memory 6GiB"))
	second.end()
	v.ends()
}

// Grants that are found again without a checkpoint.
func goldenLostCheckpoint(t *testing.T, name string) {
	v := newMachine(t, setup{hardware: "a30x2"}).visible(name)
	v.shows("lost", "--memory 3GiB --percent 20"+v.pin(0), hold())
	if err := v.callGrants(); err != nil {
		t.Fatal(err)
	}
	v.killAgent()
	for _, file := range []string{"/record.json", "/record.previous.json"} {
		if err := os.Remove(v.dir + file); err != nil {
			t.Fatal(err)
		}
	}
	v.startAgent()
	v.ready()
	v.step("recovered")
	v.ends()
}

// Requests that cannot be granted, and what kerf run says of each.
func goldenRejected(t *testing.T, name string) {
	v := pooled(t, "t4x4", "r615", "", "  profiles:\n  - {name: small, memory: 1GiB}\n").visible(name)
	held := v.shows("held", "--gpus 3", hold())
	v.scrub.Know(fmt.Sprint(held.pid()), "PID-held")
	var sections []section
	for _, request := range []string{
		"--memory 100GiB", "--memory 15GiB", "--gpus 2", "--gpus 9", "--percent 101", "--memory 1GiB --percent 0",
		"--memory 1GiB --min-enforcement hardware",
		"--mig 1g", "--profile smal", "--gpu-model H100 --memory 1GiB", "--memory 3GiB --gpus 2", "--memory lots", "",
	} {
		r := v.run(flags(request), []string{"true"}).wait()
		sections = append(sections, section{"kerf run " + request, func() (string, error) {
			return fmt.Sprintf("exit %d\n%s", r.code, v.scrub.Text(r.err)), nil
		}})
	}
	v.step("rejected", sections...)
	v.ends()
}

// What kerf-monitor serves of two shares, a whole GPU and a process without a grant, and kerf top and kerf usage.
func goldenMonitor(t *testing.T, name string) {
	v := pooled(t, "a30x2", "r615", "", "  prices: {currency: EUR, perGPUHour: [{model: \"*\", price: "+
		"1000}]}\n").visible(
		name)
	v.set("gpu=0", "util=60")
	for i, request := range []string{"--memory 4GiB" + v.pin(0), "--memory 5GiB" + v.pin(0), "--gpus 1" + v.pin(1)} {
		v.shows(fmt.Sprint("grant", i), request, load("--alloc 2GiB --hold 1h")).loads(1)
	}
	o := v.monitor()
	o.source("dcgm")
	exposition := func() (string, error) {
		return v.scrub.Metrics(version.ReplaceAllString(strings.Join(o.scrape(""), "\n"), `version="VERSION"`),
			measuredHere, func(line string) bool { return idleGPU.MatchString(line) })
	}
	top := func() (string, error) { return v.json(v.kerf("top", "--once", "-o", "json").out, "usages") }
	v.step("three grants", section{"kerf-monitor", exposition}, section{"kerf top", top})
	v.ends()
}

// idleGPU finds samples of the GPUs that no process uses.
var idleGPU = regexp.MustCompile(`gpu="[23]"`)
