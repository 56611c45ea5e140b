// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// later is a program that runs argv once the file is there.
func later(file string, argv []string) []string {
	return append([]string{"sh", "-c", `until [ -e "$0" ]; do sleep 0.05; done; exec "$@"`, file}, argv...)
}

func touch(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// A grant changes while its program runs, and stays changed over a restart; the driver has the same.
func TestLimitLive(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{})
	pin := " --gpu-uuid " + m.uuid(0)
	go1 := filepath.Join(m.work, "go")
	r := m.run(flags("--memory 4GiB --name train"+pin), later(go1, load("--alloc 10GiB --hold 1h")))
	r.granted()
	m.run(flags("--memory 60GiB --name other"+pin), hold()).granted()
	checkInvariants(t, m)
	if got := m.kerf("resize", "train", "--memory", "12GiB"); got.code != 0 ||
		got.out != "train: 12GiB, was 4GiB (level driver)\n" {
		t.Fatalf("kerf resize: %v", got)
	}
	touch(t, go1)
	wantLoad(t, r.loads(1)[0], "", 10*gib, 10*gib)
	checkInvariants(t, m)
	for amount, want := range map[string]string{"10GiB": "its processes hold 10.4GiB",
		"20GiB": "free of 79.1GiB, 20GiB requested", "0": "is zero"} {
		if got := m.kerf("resize", "train", "--memory", amount); got.code == 0 || !strings.Contains(got.err, want) {
			t.Errorf("kerf resize to %s: %v, want %q", amount, got, want)
		}
	}
	checkInvariants(t, m)
	if got := m.kerf("resize", "train", "--memory", "11GiB"); got.code != 0 {
		t.Errorf("kerf resize: %v", got)
	}
	m.restartAgent()
	checkInvariants(t, m)
	if g := m.grant("train"); g.Memory != 11*gib {
		t.Errorf("after a restart the grant has %d bytes", g.Memory)
	}
	r.end()
}

// The same where the driver cannot limit: the library refuses by the new cap, and the watch acts by it.
func TestLimitLiveOnOlderDrivers(t *testing.T) {
	t.Parallel()
	for backend, level := range map[string]string{"libkerf": "userspace", "reactive": "reactive"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			m := newPooled(t, "t4x4", "r580", "driver, "+backend, ", onOverCap: kill")
			grown, shrunk := filepath.Join(m.work, "grown"), filepath.Join(m.work, "shrunk")
			script := fmt.Sprintf(
				"wait_for() { until [ -e $1 ]; do sleep 0.05; done; }; wait_for %s; %s & wait_for %s; exec %s",
				grown, strings.Join(load("--alloc 5GiB --step 256MiB --hold 1h"), " "), shrunk,
				strings.Join(load("--alloc 4GiB --step 256MiB --hold 1h"), " "))
			r := m.run(flags("--memory 2GiB --name train"), []string{"sh", "-c", script})
			r.granted()
			if got := m.kerf("resize", "train", "--memory", "8GiB"); got.code != 0 ||
				got.out != "train: 8GiB, was 2GiB (level "+
					level+")\n" {
				t.Fatalf("kerf resize: %v", got)
			}
			touch(t, grown)
			wantLoad(t, r.loads(1)[0], "", 5*gib, 5*gib)
			if got := m.kerf("resize", "train", "--memory", "4GiB"); got.code == 0 ||
				!strings.Contains(got.err, "its processes hold 5.") {
				t.Errorf("kerf resize to less than it holds: %v", got)
			}
			if got := m.kerf("resize", "train", "--memory", "6GiB"); got.code != 0 {
				t.Fatalf("kerf resize: %v", got)
			}
			touch(t, shrunk)
			if backend == "reactive" {
				eventually(t, "an end for who is past the lower cap", func() error {
					if m.killed() == 0 {
						return fmt.Errorf("no process was killed")
					}
					return nil
				})
			} else if got := r.loads(2)[1]; got.err() != "CUDA_ERROR_OUT_OF_MEMORY" || got.Allocated >= gib {
				t.Errorf("under the lower cap: %v", got)
			}
			r.end()
		})
	}
}

// A program that has its context already has more under a raised cap, is refused under a lowered one, and sees what it
// may have.
func TestLimitLiveUnderAContext(t *testing.T) {
	t.Parallel()
	for _, b := range []struct {
		backend, hardware, driver string
		context                   uint64
	}{{"driver", "h100x8", "r615", contextH100}, {"libkerf", "t4x4", "r580", contextT4}} {
		t.Run(b.backend, func(t *testing.T) {
			t.Parallel()
			backends := "driver"
			if b.backend != backends {
				backends += ", " + b.backend
			}
			m := newMachine(t, setup{hardware: b.hardware, driver: b.driver, noAgent: true})
			m.agentFlags = []string{"--config", m.write(head + "spec:\n  pools:\n  - {name: default, backends: [" +
				backends + "]}\n")}
			m.startAgent()
			m.ready()
			r := m.asks(flags("--memory 4GiB --name train"), load("--alloc 1GiB --more 4GiB --hold 1h"))
			want := func(got loaded, err string, has, limit uint64) {
				t.Helper()
				wantLoad(t, got, err, has, has)
				// The context is counted once it was seen.
				if got.Total == nil || got.Free == nil || *got.Total != limit || *got.Free > limit-has ||
					*got.Free < limit-has-b.context {
					t.Errorf("it sees %v, want a GPU of %d with what %d leaves", got, limit, has)
				}
			}
			limit := func(size string) {
				t.Helper()
				if got := m.kerf("resize", "train", "--memory", size); got.code != 0 {
					t.Fatalf("kerf resize to %s: %v", size, got)
				}
			}
			want(r.next(), "", gib, 4*gib)
			if g := m.grant("train"); g.Backend != b.backend {
				t.Fatalf("held by %s, want %s", g.Backend, b.backend)
			}
			want(r.more(), oom, gib, 4*gib)
			limit("8GiB")
			want(r.more(), "", 5*gib, 8*gib)
			limit("6GiB")
			want(r.more(), oom, 5*gib, 6*gib)
			limit("10GiB")
			want(r.more(), "", 9*gib, 10*gib)
			checkInvariants(t, m)
			r.end()
		})
	}
}

// Free memory serves as burst memory. A request takes back what is idle of it, and waits for what is in use.
func TestBurst(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{noAgent: true})
	m.agentFlags = []string{"--config", m.write(head +
		"spec:\n  pools: [{name: default}]\n  profiles:\n  - {name: burst, memory: 4GiB, maxBurstMemory: 40GiB}\n")}
	m.startAgent()
	m.ready()
	pin := " --gpu-uuid " + m.uuid(0)
	file := filepath.Join(m.work, "go")
	r := m.run(flags("--profile burst --name notebook"+pin), later(file, load("--alloc 20GiB --hold 1h")))
	lent := func(want uint64) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d bytes are burst", want), func() error {
			if got := m.gpu(0).Burst; got != want {
				return fmt.Errorf("%d", got)
			}
			return nil
		})
		checkInvariants(t, m)
	}
	lent(36 * gib)
	touch(t, file)
	wantLoad(t, r.loads(1)[0], "", 20*gib, 20*gib)
	// Some 79 GiB are usable, of which it uses 20: most of the rest is burst memory and idle.
	big := m.run(flags("--memory 55GiB --name big"+pin), hold())
	lent((m.gpu(0).Memory - m.gpu(0).Reserved - 59*gib) / mib * mib)
	if got := m.kerf("run", "--memory", "10GiB", "--gpu-uuid", m.uuid(0), "--", "true"); got.code == 0 ||
		!strings.Contains(got.err, "burst memory") {
		t.Errorf("a grant of burst memory that is in use: %v", got)
	}
	m.restartAgent()
	checkInvariants(t, m)
	big.end()
	r.end()
	m.noGrants()
}
