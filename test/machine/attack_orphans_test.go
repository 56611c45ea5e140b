// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

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

// attackOrphans has processes take memory and end, while their children keep it. It counts to the grant's cap by each
// backend.
func attackOrphans(t *testing.T) { orphansBy(t, seenMS, (*machine).orphansAreEnded) }

// attackQuickOrphans is the same with processes that end at once. What no sample has seen in the grant is shown, and
// nothing is killed for it.
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

// orphansAreRefused checks that the memory of the first counts, so that no later program gets as much.
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

// attackPIDReuse gives the PID of an ended process, which the driver still lists with memory, to processes that use no
// GPU: one of another grant, and one of no grant. Kerf signals none of them.
func attackPIDReuse(t *testing.T) {
	b := strongest()
	m := b.make(t, usualHardware, b.driver, ", onUnmanagedProcess: kill")
	attacker := m.attacker()
	for _, innocent := range []string{"of another grant", "of no grant"} {
		t.Run(innocent, func(t *testing.T) {
			m := m.in(t)
			holder := m.run(flags("--memory 4GiB --name holder --gpu-uuid "+m.uuid(0)),
				[]string{attacker, "orphans", "3000", "1", seenMS})
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
