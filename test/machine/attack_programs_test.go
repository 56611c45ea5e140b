// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/nodeclient"
)

// attackCap is what an attacker is granted.
const attackCap = 4 * gib

// strongest is the backend that enforces shares on a driver.
func strongest() backend {
	for _, b := range backends() {
		if *attackedDriver == "r615" && b.name == "driver" || *attackedDriver != "r615" && b.name == "libkerf" {
			return b
		}
	}
	panic("no backend")
}

// attacker builds testdata/attacker.c once for a machine.
func (m *machine) attacker() string {
	m.t.Helper()
	path := filepath.Join(m.base, "attacker")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	cmd := exec.CommandContext(m.t.Context(), "cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror",
		"-I../../internal/libkerf/lib", "-o", path, "testdata/attacker.c", "-ldl")
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("build the attacker: %v\n%s", err, out)
	}
	return path
}

// attackRawSymbols takes memory by the driver's own functions, past libkerf, in a process that libkerf counts.
func attackRawSymbols(t *testing.T) {
	m := newPreloading(t, ", onOverCap: kill")
	neighbour := m.run(flags("--memory 4GiB --name neighbour --gpu-uuid "+m.uuid(0)), load("--alloc 3GiB --hold 1h"))
	wantLoad(t, neighbour.loads(1)[0], "", 3*gib, 3*gib)
	r := m.run(flags("--memory 4GiB --name raw --gpu-uuid "+m.uuid(0)), []string{m.attacker(), "raw", "9000", "500"})
	wantKilled(t, r)
	if n := m.watched().kills["over_cap"]; n != 1 || !neighbour.running() {
		t.Errorf("%d processes were killed for being over a cap; the neighbour runs: %t", n, neighbour.running())
	}
}

// attackActivation takes memory from another thread while the grant is activated.
func attackActivation(t *testing.T) {
	b := strongest()
	m := b.make(t, usualHardware, b.driver, "")
	for within, tries := range map[time.Duration]int{raceEarly: 24, raceLate: 12} {
		ends := m.raceAll("thread", tries, within)
		t.Logf("within %s: %v", within, ends)
		if ends[raceWon] > 0 || ends[raceShown] > 0 {
			t.Error("the cap was passed")
		}
	}
	checkInvariants(t, m)
}

// mixProgram builds libkerf's own test program, of which "mix" allocates in every way from many threads.
func mixProgram(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "make", "-s", "-C", "../../internal/libkerf/lib", "OUT="+out,
		"SIM="+program("gpusim-lib")+"/r580", out+"/check/kerfcheck")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build kerfcheck: %v\n%s", err, text)
	}
	return out + "/check/kerfcheck"
}

// attackThreads has processes of 64 threads allocate and free in every way. Some are killed in the middle.
func attackThreads(t *testing.T) {
	b := strongest()
	m := b.make(t, usualHardware, b.driver, "")
	program := mixProgram(t)
	m.set("gpu=all", "peak=now")
	one := `"$0" gpu:0 mix:64:$1:$2 > /dev/null & `
	killed := `"$0" gpu:0 mix:64:$1:$3:500 > /dev/null & `
	r := m.run(flags("--memory 4GiB --name threads --gpu-uuid "+m.uuid(0)),
		[]string{"sh", "-c", one + killed + killed + "wait; exec sleep 3600", program, "150", "7", "11"})
	grant := r.granted()
	eventually(t, "end of the threads", func() error {
		if n := len(m.grant("threads").PIDs); n > 1 || n == 0 {
			return fmt.Errorf("%d processes", n)
		}
		return nil
	})
	if most := m.memory().peak; most < gib || most > attackCap {
		t.Errorf("%d bytes were held at a time", most)
	}
	r.end()
	m.endsWith(grant.Cgroup)
	after := m.run(flags("--memory 4GiB --gpu-uuid "+m.uuid(0)), load("--alloc 3584MiB")).wait()
	if after.code != 0 {
		t.Errorf("the next program does not get its whole cap: %v", after)
	}
}

// planMIG sends a config to the node API.
func (m *machine) planMIG(document string) error {
	m.t.Helper()
	client, err := nodeclient.New(m.dir)
	if err != nil {
		m.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(m.t.Context(), *patience)
	defer cancel()
	_, err = client.PlanMIG(ctx, document, false)
	return err
}

// attackDocuments sends configs to the node API that take memory or time to read.
func attackDocuments(t *testing.T) {
	m := newMachine(t, setup{hardware: usualHardware, driver: "r580"})
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 9; i++ {
		alias := fmt.Sprintf("*a%d,", i-1)
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(alias, 10), ","))
	}
	f := flooded{machine: m}
	before, _ := f.memoryOf(m.agent.pid())
	f.resetPeak(m.agent.pid())
	for name, text := range map[string]string{
		"aliases": bomb, "brackets": strings.Repeat("[", 1<<20), "braces": strings.Repeat("{a: ", 250_000),
		"pools": head + "spec:\n  pools:\n" + strings.Repeat("  - name: a\n", 80_000),
		// These have nearly the 256 KiB that a call may send, so that the agent reads them.
		"lists as pools": head + "spec:\n  pools: [" + strings.Repeat("[],", 80_000) + "[]]\n",
		"unknown fields": head + "spec:\n  pools:\n" + strings.Repeat("  - {x: 1}\n", 22_000),
	} {
		if err := m.planMIG(text); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	f.wantLittleGrowth(m.agent.pid(), before)
	if !m.agent.running() {
		t.Error("the agent ended")
	}
}
