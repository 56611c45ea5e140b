// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// matrixFile is where the matrix is written; without it the test is left out.
var matrixFile = flag.String("matrix", "", "run the matrix of enforcement, and write it to this file")

// matrixRows chooses cells by their names, to try only some; nothing is written then.
var matrixRows = flag.String("matrix-rows", "",
	"run only the attempts of the matrix whose names (family, blank, attack) match, and print them")

// matrixCap is what each program is granted.
const matrixCap = 2 * gib

// backend is one backend for shares, on a separate machine.
type backend struct {
	name, level, driver string
	make                func(t *testing.T, hardware, driver, pool string) *machine
}

// Programs run on the first of these machines, but for those that need another GPU.
const usualHardware, switchedHardware = "t4x4", "h100x8"

func backends() []backend {
	const kill = ", onOverCap: kill"
	return []backend{
		{"driver", "driver", "r615", func(t *testing.T, hw, driver, pool string) *machine {
			m := newMachine(t, setup{hardware: hw, driver: driver, noAgent: true})
			m.agentFlags = []string{"--config", m.write(head + "spec:\n  pools:\n  - {name: default" + pool + "}\n")}
			m.startAgent()
			m.ready()
			return m
		}},
		{"mps", "userspace", "r580", func(t *testing.T, hw, driver, pool string) *machine {
			return newMPSOn(t, hw, driver, "driver, mps, reactive", kill+pool)
		}},
		{"libkerf", "userspace", "r580", func(t *testing.T, hw, driver, pool string) *machine {
			return newPooled(t, hw, driver, "driver, libkerf, reactive", kill+pool)
		}},
		{"reactive", "reactive", "r580", func(t *testing.T, hw, driver, pool string) *machine {
			return newPooled(t, hw, driver, "driver, reactive", kill+pool)
		}},
	}
}

// first is the attempt before all others on a machine. The size of a context is not measured while attempts follow each
// other.
func first() attempt {
	return attempt{family{api: "linear", note: ", as the first program on a GPU since the agent started"}, plain()}
}

// TestMatrix runs each way to get memory, with each attack, against each backend, and writes down what held. A cell
// that is over its cap while Kerf says that it is held fails.
func TestMatrix(t *testing.T) {
	if *matrixFile == "" && *matrixRows == "" {
		t.Skip("needs -matrix FILE (make matrix)")
	}
	chosen, err := regexp.Compile(*matrixRows)
	if err != nil {
		t.Fatal(err)
	}
	var all []attempt
	for _, f := range families() { // by family, so that the same attack on a backend's daemons does not follow itself
		for _, k := range append([]attack{plain()}, attacks()...) {
			if a := (attempt{f, k}); !a.leftOut() && chosen.MatchString(a.name()) {
				all = append(all, a)
			}
		}
	}
	setPID = checkProgram(t, t.TempDir(), "setpid")
	got := matrix{}
	for _, b := range backends() {
		got[b.name] = map[string]cell{}
	}
	var mu sync.Mutex // of got
	t.Run("backends", func(t *testing.T) {
		for _, b := range backends() {
			for part, some := range halves(all) {
				t.Run(fmt.Sprintf("%s-%d", b.name, part), func(t *testing.T) {
					t.Parallel() // most of the time is waiting
					cells := b.cells(t, some)
					mu.Lock()
					defer mu.Unlock()
					maps.Copy(got[b.name], cells)
				})
			}
		}
	})
	if t.Failed() || *matrixRows != "" {
		return
	}
	if err := os.WriteFile(*matrixFile, []byte(document(backends(), got)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// halves are the attempts of every second family, in their order.
func halves(all []attempt) [2][]attempt {
	var out [2][]attempt
	var seen []string
	for _, a := range all {
		if !slices.Contains(seen, a.api+a.note) {
			seen = append(seen, a.api+a.note)
		}
		out[len(seen)%2] = append(out[len(seen)%2], a)
	}
	return out
}

// cells makes the attempts against a backend, on machines of their own.
func (b backend) cells(t *testing.T, all []attempt) map[string]cell {
	t.Helper()
	cells, machines := map[string]cell{}, map[string]*machine{}
	for _, a := range all {
		hw, driver := cmp.Or(a.hardware, usualHardware), cmp.Or(a.driver, b.driver)
		on := machines[hw+driver+a.pool]
		if on == nil {
			pool := ""
			if a.pool != "" {
				pool = ", " + a.pool
			}
			on = b.make(t, hw, driver, pool)
			machines[hw+driver+a.pool] = on
			if b.name == "libkerf" {
				on.in(t).measured() // a helper of the agent holds memory until then
			}
			c := on.cell(t, b, first())
			if hw == usualHardware && pool == "" {
				cells[firstName] = c
			}
		}
		cells[a.name()] = on.cell(t, b, a)
	}
	return cells
}

// cell makes an attempt, and fails where what is shown is not so.
func (m *machine) cell(t *testing.T, b backend, a attempt) cell {
	t.Helper()
	s := m.try(t, b, a)
	v := judged(s, b.name == "driver" && a.mayPass(b.name) == "")
	c := cell{verdict: v, over: over(s), by: s.killed, delay: s.delay}
	t.Logf("%s: %s; %s", a.name(), c, s)
	switch {
	case s.took == 0 && s.failed == "" && s.killed == "" && s.peak <= s.cap:
		t.Errorf("%s: no program said what it got: %s", a.name(), s)
	case v == silent:
		t.Errorf("%s at level %s is over its cap and shown as held: %s", a.name(), b.level, s)
	case a.mayPass(b.name) == "" && b.name != "reactive" && !slices.Contains(stopped(), v):
		t.Errorf("%s by %s is %s, and should be held: %s", a.name(), b.name, v, s)
	case v == wasHeld && a.attack.name == "" && s.failed == oom && s.took < s.cap/2:
		t.Errorf("%s got %d bytes alone of %d: %s", a.name(), s.took, s.cap, s)
	case s.first != b.level:
		t.Errorf("%s began at level %s, want %s", a.name(), s.first, b.level)
	}
	return c
}

// try makes an attempt and watches it until nothing more can come of it: its programs have what they can get and are
// within their cap, or have ended.
func (m *machine) try(t *testing.T, b backend, a attempt) seen {
	t.Helper()
	m = m.in(t)
	name := "m-" + strings.ToLower(strings.NewReplacer(" ", "-", ",", "", ":", "").Replace(a.name()))
	m.set("gpu=all", "peak=now")
	base := m.memory()
	if base.peak != 0 {
		t.Fatalf("before %s by %s programs hold %d bytes", a.name(), b.name, base.peak)
	}
	before := m.watched()
	r := m.run(flags("--memory 2GiB --name "+name+" --gpu-uuid "+m.uuid(0)),
		[]string{"sh", "-c", a.scriptFor(m.uuid(0), m.uuid(3))})
	grant := r.granted()
	s := seen{cap: matrixCap, context: contextT4, first: grant.Level, last: grant.Level, rejects: a.pool != ""}
	if a.mayPass(b.name) != "" {
		s.slack = 32*mib + 8*mib*uint64(max(a.says, 1)) // sharing/backend/libkerf/contextsize
	}
	if a.hardware == switchedHardware {
		s.context = contextH100
	}
	began, quiet, lines := time.Now(), time.Now(), 0
	var since time.Time   // it is over its cap; zero while it is not
	var settled time.Time // when Kerf had said that it is over its cap
	for r.running() {
		time.Sleep(20 * time.Millisecond)
		now := m.memory()
		n := strings.Count(r.stdout(), "\n")
		if now.peak != s.peak || n != lines {
			s.peak, lines, quiet = now.peak, n, time.Now()
		}
		switch over := now.used-min(now.used, base.used) > s.cap; {
		case !over:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		default:
			s.lasted = max(s.lasted, time.Since(since))
		}
		if s.peak > s.cap {
			if m.note(&s, name); settled.IsZero() && s.warned {
				settled = time.Now()
			}
			if !settled.IsZero() && time.Since(settled) > 3*time.Second {
				break // it is not going to be killed
			}
		} else if lines >= max(a.says, 1) || lines > 0 && time.Since(quiet) > 3*time.Second {
			break
		}
		if time.Since(began) > *patience {
			r.end()
			t.Fatalf("%s by %s does not end", a.name(), b.name)
		}
	}
	r.end()
	end := r.wait()
	s.peak = max(s.peak, m.memory().peak)
	for counted := time.Now(); ; time.Sleep(50 * time.Millisecond) { // a kill is counted once it is done
		s.killed, s.delay = m.watched().since(before)
		if s.killed != "" || s.peak <= s.cap || time.Since(counted) > time.Second {
			break
		}
	}
	for line := range strings.Lines(end.out) {
		var l loaded
		if json.Unmarshal([]byte(line), &l) == nil {
			s.took += l.Allocated
			if l.Error != nil {
				s.failed = *l.Error
			}
		}
	}
	m.endsWith(grant.Cgroup)
	return s
}

// note writes down what Kerf says of a grant that is over its cap.
func (m *machine) note(s *seen, name string) {
	m.t.Helper()
	state := m.state()
	g, ok := state.grant(name) // it ends when its cgroup is left
	if ok {
		s.last = g.Level
	}
	for _, w := range state.Warnings {
		s.warned = s.warned || ok && strings.Contains(w, g.ID) ||
			strings.HasPrefix(w, "GPU 0 is used by processes without a grant") ||
			strings.HasPrefix(w, "GPU 0 has ") && strings.Contains(w, "of unattributed memory")
	}
}
