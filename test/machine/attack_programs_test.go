// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
	cmd := exec.CommandContext(m.t.Context(), "cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", path, "testdata/attacker.c", "-ldl")
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("build the attacker: %v\n%s", err, out)
	}
	return path
}

// orphaned reads a line of the attacker's orphans: who took memory and ended, and what CUDA said.
func orphaned(t *testing.T, line string) (pid, result int) {
	t.Helper()
	if _, err := fmt.Sscanf(line, "%d %d", &pid, &result); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return pid, result
}

// seenMS is how long a process lives so that the reactive backend has a sample of it.
const seenMS = "800"

// attackOrphans has processes take memory and end, while their children keep it. It counts to the grant's cap by each backend.
func attackOrphans(t *testing.T) { orphansBy(t, seenMS, (*machine).orphansAreEnded) }

// attackQuickOrphans is the same with processes that end at once. What no sample has seen in the grant is shown, and nothing
// is killed for it.
func attackQuickOrphans(t *testing.T) { orphansBy(t, "0", (*machine).orphansAreShown) }

// orphansBy runs them by each backend of the driver. where is what comes of them where nothing rejects an allocation.
func orphansBy(t *testing.T, ms string, where func(*machine)) {
	for _, b := range backends() {
		if b.driver != *attackedDriver {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			m := b.make(t, usualHardware, b.driver, "")
			m.set("gpu=all", "peak=now")
			r := m.run(flags("--memory 4GiB --name orphans"), []string{m.attacker(), "orphans", "3000", "4", ms})
			lines := r.lines(1)
			if _, result := orphaned(t, lines[0]); result != 0 {
				t.Fatalf("the first process got no memory: %v", lines)
			}
			if b.name == "driver" || b.name == "libkerf" {
				m.orphansAreRefused(r)
			} else {
				where(m)
			}
			r.end()
			m.endsWith(r.readStatus().Cgroup)
			m.noGrants()
		})
	}
}

// orphansAreRefused checks that the memory of the first counts, so that nobody after it gets as much.
func (m *machine) orphansAreRefused(r *run) {
	m.t.Helper()
	for _, line := range r.lines(4)[1:] {
		if _, result := orphaned(m.t, line); result == 0 {
			m.t.Errorf("another process got memory: %q", line)
		}
	}
	if most := m.memory().peak; most > attackCap {
		m.t.Errorf("%d bytes were held", most)
	}
	eventually(m.t, "the orphan's memory in the grant's use", func() error {
		if g := m.grant("orphans"); g.Used == nil || *g.Used < 3000*mib {
			return fmt.Errorf("%s", inWords(g.Used))
		}
		return nil
	})
}

// orphansAreEnded waits until the grant, which is over its cap, lost processes until it is within.
func (m *machine) orphansAreEnded() {
	m.t.Helper()
	eventually(m.t, "use within the cap", func() error {
		used := m.memory().used
		if kills := m.watched().kills["over_cap"]; kills == 0 || used > attackCap {
			return fmt.Errorf("%d processes were killed, %d bytes are held", kills, used)
		}
		return nil
	})
}

// orphansAreShown waits for the warnings, and for the memory in the grant's use.
func (m *machine) orphansAreShown() {
	m.t.Helper()
	m.wantWarning("grant "+m.grant("orphans").ID, "holds more than its 4GiB")
	m.wantWarning("grant "+m.grant("orphans").ID, "belongs to processes that have ended")
	if g := m.grant("orphans"); g.Used == nil || *g.Used < 2*3000*mib {
		m.t.Errorf("used: %s", inWords(g.Used))
	}
}

// attackPIDReuse gives the PID of an ended process, which the driver still lists with memory, to processes that use no GPU:
// one of another grant, and one of no grant. Nobody signals them.
func attackPIDReuse(t *testing.T) {
	b := strongest()
	m := b.make(t, usualHardware, b.driver, ", strangers: kill")
	attacker := m.attacker()
	for _, innocent := range []string{"of another grant", "of no grant"} {
		t.Run(innocent, func(t *testing.T) {
			m := m.in(t)
			holder := m.run(flags("--memory 4GiB --name holder --gpu-uuid "+m.uuid(0)), []string{attacker, "orphans", "3000", "1", seenMS})
			pid, result := orphaned(t, holder.lines(1)[0])
			if result != 0 {
				t.Fatalf("the holder got no memory: %d", result)
			}
			eventually(t, "end of the process that took it", func() error {
				if !dead(pid) {
					return errors.New("it lives")
				}
				return nil
			})
			if !m.lists(pid) {
				t.Fatalf("the driver does not list the process %d, which has ended", pid)
			}
			argv := []string{attacker, "successor", strconv.Itoa(pid)}
			var other *proc
			if innocent == "of no grant" {
				cmd := exec.Command(argv[0], argv[1:]...)
				cmd.Env = m.env
				other = begin(t, m.work, "innocent", cmd)
			} else {
				other = m.run(flags("--memory 2GiB --name innocent --gpu-uuid "+m.uuid(0)), argv).proc
			}
			eventually(t, "the successor", func() error {
				if said := other.stdout(); strings.HasPrefix(said, "started") {
					return nil
				}
				return errors.New(other.stdout() + other.stderr())
			})
			m.looks(20)
			if said := other.stdout(); strings.Contains(said, "ended") || m.killed() != 0 {
				t.Errorf("%d processes were killed; the innocent one: %s", m.killed(), said)
			}
			eventually(t, "the memory in the holder's use", func() error {
				if g := m.grant("holder"); g.Used == nil || *g.Used < 3000*mib {
					return fmt.Errorf("%s", inWords(g.Used))
				}
				return nil
			})
			other.kill()
			holder.end()
			m.noGrants()
		})
	}
}

// lists reports whether the driver lists a process.
func (m *machine) lists(pid int) bool {
	m.t.Helper()
	all := decode[[]struct{ PID int }](m.t, m.gpusim("processes", "-o", "json").out)
	return slices.ContainsFunc(all, func(p struct{ PID int }) bool { return p.PID == pid })
}

// attackRawSymbols takes memory by the driver's own functions, past libkerf, in a process that libkerf counts.
func attackRawSymbols(t *testing.T) {
	m := newPreloading(t, ", overCap: kill")
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

// crashRounds is how often the agent is killed.
const crashRounds = 25

// attackCrashes kills the agent at random moments while programs come and go. The driver judges.
func attackCrashes(t *testing.T) {
	b := strongest()
	m := b.make(t, usualHardware, b.driver, "")
	random := rand.New(rand.NewPCG(raceSeed, 1))
	var runs []*run
	start := func() {
		gibs := 1 + random.IntN(4)
		takes := gibs + random.IntN(3) - 1
		runs = append(runs, m.run(flags(fmt.Sprintf("--memory %dGiB", gibs)),
			load(fmt.Sprintf("--alloc %dMiB --step 256MiB --hold %dms", takes*1024+512, 50+random.IntN(2000)))))
	}
	for round := range crashRounds {
		for range random.IntN(3) {
			start()
		}
		time.Sleep(time.Duration(random.IntN(350)) * time.Millisecond) // a random moment
		m.killAgent()
		if random.IntN(2) == 0 {
			start() // waits for an agent
		}
		m.startAgent()
		if round%5 == 4 {
			m.ready()
			checkInvariants(t, m)
		}
	}
	m.ready()
	for _, r := range runs {
		if end := r.wait(); end.signal != 0 || !slices.Contains([]int{0, 9, 125}, end.code) {
			t.Errorf("a program ended so: %v", end)
		}
	}
	m.noGrants()
	checkInvariants(t, m)
}

// attackSpoiltFiles spoils a file of the agent's after each kill. It always comes back, and books no less than runs.
func attackSpoiltFiles(t *testing.T) {
	b := strongest()
	m := b.make(t, usualHardware, b.driver, "")
	runs := []*run{
		m.run(flags("--memory 4GiB --name one"), load("--alloc 3GiB --hold 1h")),
		m.run(flags("--memory 6GiB --name two"), load("--alloc 5GiB --hold 1h")),
		m.run(flags("--gpus 1 --name whole"), load("--alloc 1GiB --hold 1h")),
	}
	for _, r := range runs {
		wantLoad(t, r.loads(1)[0], "", gib, 5*gib)
	}
	before := m.state()
	random := rand.New(rand.NewPCG(raceSeed, 2))
	for range 12 {
		m.killAgent()
		what := m.spoil(random)
		m.startAgent()
		m.ready()
		for _, g := range before.GPUs {
			if now := m.gpu(g.Index); now.Granted < g.Granted {
				t.Errorf("after %s, GPU %d has %d bytes granted, %d before", what, g.Index, now.Granted, g.Granted)
			}
		}
		if n := len(m.state().Grants); n != len(runs) {
			t.Errorf("after %s there are %d grants, want %d", what, n, len(runs))
		}
	}
	for _, r := range runs {
		if !r.running() {
			t.Errorf("a program ended: %v", r.wait())
		}
		r.end()
	}
	m.noGrants()
}

// spoil damages one of the agent's files at random, and says how.
func (m *machine) spoil(random *rand.Rand) string {
	m.t.Helper()
	var files []string
	for _, pattern := range []string{m.dir + "/*.json", stateDir(m.dir) + "/*"} {
		found, _ := filepath.Glob(pattern) // the pattern is well formed
		for _, file := range found {
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
				files = append(files, file)
			}
		}
	}
	if len(files) < 2 {
		m.t.Fatalf("the agent's files: %q", files)
	}
	file := files[random.IntN(len(files))]
	data, err := os.ReadFile(file)
	if err != nil {
		m.t.Fatal(err)
	}
	how := []string{"cut", "flipped", "doubled", "emptied", "zeroed", "removed"}[random.IntN(6)]
	switch how {
	case "cut":
		data = data[:len(data)/2]
	case "flipped":
		data = flip(data)
	case "doubled":
		data = append(data, data...)
	case "emptied":
		data = nil
	case "zeroed":
		clear(data)
	}
	if err = os.WriteFile(file, data, 0o600); how == "removed" {
		err = os.Remove(file)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return filepath.Base(file) + " was " + how
}

// mixProgram builds libkerf's own test program, of which "mix" allocates in every way from many threads.
func mixProgram(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "make", "-s", "-C", "../../internal/libkerf/lib", "OUT="+out, "SIM="+program("gpusim-lib")+"/r580", out+"/check/kerfcheck")
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
	r := m.run(flags("--memory 4GiB --name threads --gpu-uuid "+m.uuid(0)), []string{"sh", "-c", one + killed + killed + "wait; exec sleep 3600", program, "150", "7", "11"})
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

// planMIG sends a document to the node API.
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

// attackDocuments sends documents to the node API that grow when they are read.
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
