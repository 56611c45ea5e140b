// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// annsFirst is the first of a range of UIDs that is ann's.
const annsFirst = 300_000

// quotaUsers is a machine whose pool has a quota for each user.
type quotaUsers struct {
	*machine
	kerf, gpuload string
}

func newQuotaUsers(t *testing.T, driver, quota string) quotaUsers {
	t.Helper()
	m := newMachine(t, setup{hardware: "t4x4", driver: driver, noAgent: true})
	conf := m.write(head + "spec:\n  pools:\n  - {name: default, minEnforcement: reactive, userQuota: " + quota + "}\n")
	subordinate := filepath.Join(m.work, "subuid")
	if err := os.WriteFile(subordinate, fmt.Appendf(nil, "%d:%d:65536\n", ann, annsFirst), 0o600); err != nil {
		t.Fatal(err)
	}
	m.agentFlags = []string{"--group", "nogroup", "--config", conf, "--subuid-file", subordinate}
	m.startAgent()
	m.ready()
	u := quotaUsers{machine: m}
	u.kerf, u.gpuload = asNobody(t, m)
	return u
}

// starts runs a user's program with a grant.
func (m quotaUsers) starts(uid uint32, request string, argv ...string) *run {
	m.t.Helper()
	return m.run(flags(request), argv, asUser(uid, nogroup), withProgram(m.kerf))
}

// begun is a program that says that it runs.
func begun() []string { return []string{"sh", "-c", "echo begun; exec sleep 3600"} }

// holds is a user's program that runs with its grant until it is ended.
func (m quotaUsers) holds(uid uint32, request string) *run {
	m.t.Helper()
	r := m.starts(uid, request, begun()...)
	r.lines(1)
	return r
}

// rejects wants a run to end with the exit status and the message of a rejected request, without its program.
func (m quotaUsers) rejects(uid uint32, request string, says ...string) {
	m.t.Helper()
	owner := uid
	if uid >= annsFirst {
		owner = ann
	}
	r := m.starts(uid, request, "echo", "started")
	got := r.wait()
	if got.code != 125 || got.out != "" {
		m.t.Errorf("uid %d, %s: %v, want exit status 125", uid, request, got)
	}
	for _, part := range append(says, fmt.Sprintf("user quota of uid %d", owner)) {
		if !strings.Contains(flat(got.err), part) {
			m.t.Errorf("uid %d, %s: it does not say %q: %s", uid, request, part, got.err)
		}
	}
}

// freed waits until a user has so many grants.
func (m quotaUsers) freed(uid uint32, n int) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("%d grants of uid %d", n, uid), func() error {
		if got := m.grantsOf(uid); got != n {
			return fmt.Errorf("%d", got)
		}
		return nil
	})
}

func (m quotaUsers) grantsOf(uid uint32) (n int) {
	for _, g := range m.state().Grants {
		if g.UID == uid {
			n++
		}
	}
	return n
}

// A user gets no more grants and no more memory than the quota. Other users and root do not notice. A restart of the
// agent forgets nothing, and the quota is free again when a grant ends.
func TestUserQuota(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"r580", "r615"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			m := newQuotaUsers(t, driver, "{grants: 2, memory: 10GiB}")
			first := m.holds(ann, "--memory 4GiB")
			m.rejects(ann, "--memory 7GiB",
				"7GiB requested, 4GiB used, 10GiB allowed (userQuota.memory); request less or end a grant first")
			m.rejects(ann, "--gpus 1", "4GiB used, 10GiB allowed")
			m.rejects(ann, "--percent 60", "4GiB used, 10GiB allowed")
			second := m.holds(ann, "--memory 5GiB")
			const grants = "1 grant requested, 2 used, 2 allowed (userQuota.grants); end a grant first"
			m.rejects(ann, "--memory 1GiB", grants)

			others := []*run{m.holds(bob, "--memory 10GiB")}
			for _, more := range []string{"11GiB", "3GiB", "3GiB"} { // of root, above both amounts
				r := m.run(flags("--memory "+more), hold())
				r.granted()
				others = append(others, r)
			}

			m.restartAgent()
			m.rejects(ann, "--memory 1GiB", grants)
			m.rejects(bob, "--memory 1GiB", "1GiB requested, 10GiB used")
			first.end()
			m.freed(ann, 1)
			m.rejects(ann, "--memory 6GiB", "6GiB requested, 5GiB used, 10GiB allowed")
			again := m.holds(ann, "--memory 5GiB")
			for _, r := range append(others, second, again) {
				r.end()
			}
			m.noGrants()
			checkInvariants(t, m.machine)
		})
	}
}

// attackQuota is one user who tries to get more than the quota: by many requests at once, also while the agent is
// killed, as subordinate UIDs, and by children that outlive the process of the grant. Another user gets a grant all the
// time.
func attackQuota(t *testing.T) {
	const most = 3
	m := newQuotaUsers(t, *attackedDriver, "{grants: 3, memory: 9GiB}")
	const full = "1 grant requested, 3 used, 3 allowed"
	for _, killed := range []bool{false, true} {
		held := m.floods(ann, 24, killed)
		if len(held) > most || !killed && len(held) != most {
			t.Errorf("agent killed: %t: %d programs run, want %d", killed, len(held), most)
		}
		m.freed(ann, len(held)) // what was reserved for a program that did not survive the agent's end
		for len(held) < most {
			held = append(held, m.holds(ann, "--memory 3GiB"))
		}
		m.rejects(ann, "--memory 1GiB", full)
		for _, uid := range []uint32{annsFirst, annsFirst + 65_535} {
			m.rejects(uid, "--memory 1GiB", full)
		}
		m.holds(bob, "--memory 3GiB").end()
		for _, r := range held {
			r.end()
		}
		m.freed(ann, 0)
	}
	var children []int
	for range most {
		r := m.starts(ann, "--memory 3GiB", "sh", "-c", "sleep 3600 > /dev/null 2>&1 & echo $!")
		pid, err := strconv.Atoi(strings.TrimSpace(r.wait().out))
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, pid)
	}
	m.rejects(ann, "--memory 1GiB", full)
	for _, pid := range children {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	m.noGrants()
	checkInvariants(t, m.machine)
}

// floods has a user request n grants at once, and returns the programs that run with one. The others have ended.
func (m quotaUsers) floods(uid uint32, n int, killAgent bool) (held []*run) {
	m.t.Helper()
	var runs []*run
	for range n {
		runs = append(runs, m.starts(uid, "--memory 3GiB", begun()...))
	}
	if killAgent {
		m.restartAgent()
	}
	eventually(m.t, "an answer to all requests", func() error {
		held = nil
		for _, r := range runs {
			switch {
			case !r.running():
			case r.stdout() != "":
				held = append(held, r)
			default:
				return fmt.Errorf("process %d waits: %s", r.pid(), r.stderr())
			}
		}
		return nil
	})
	return held
}
