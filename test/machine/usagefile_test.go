// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const (
	// pages is more than the room of a grant's folder, and far less than that of the agent's disk.
	pages = "4M"
	// capSysAdmin is CAP_SYS_ADMIN.
	capSysAdmin = 21
)

// folderOf is the folder of a grant, as the host sees it.
func (m *machine) folderOf(id string) string { return filepath.Join(m.dir, "client", id) }

// free is the room on the disk of the agent's directory.
func (m *machine) free() uint64 {
	m.t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(m.dir, &fs); err != nil {
		m.t.Fatal(err)
	}
	return fs.Bavail * uint64(fs.Bsize)
}

// asStranger runs a shell script as a user that has no grant and is in no group.
func asStranger(t *testing.T, script string, args ...string) string {
	t.Helper()
	c := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1234, Gid: 1234}}
	out, _ := c.CombinedOutput()
	return string(out)
}

// Another user can neither spoil the counters of a grant nor read them: the grant keeps its level, its programs run,
// and its next program gets the memory that is left.
func TestOthersCannotReachTheCounters(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, "")
	gate := filepath.Join(m.work, "gate")
	script := program("gpuload") + " --json --alloc 1GiB --hold 1h & until [ -e " + gate +
		" ]; do sleep 0.05; done; exec " + program("gpuload") + " --json --alloc 2GiB --hold 1h"
	victim := m.run(flags("--memory 4GiB --name victim"), []string{"sh", "-c", script})
	wantLoad(t, victim.loads(1)[0], "", gib, gib)
	folder := m.folderOf(victim.granted().ID)
	for _, file := range []string{folder + "/usage", folder + "/region/usage"} {
		for _, attack := range []string{`cat "$1"`, `truncate -s 0 "$1"`, `fallocate -l 1G "$1"`,
			`fallocate -p -o 0 -l 300000 "$1"`, `printf x | dd of="$1" conv=notrunc`, `rm -f "$1"`} {
			if out := asStranger(t, attack+" && echo done", file); !strings.Contains(out, "denied") ||
				strings.Contains(out, "done") {
				t.Errorf("%s on %s: %.200q", attack, file, out)
			}
		}
	}
	if out := asStranger(t, `ls "$1/client" && echo done`, m.dir); !strings.Contains(out, "denied") ||
		strings.Contains(out, "done") {
		t.Errorf("the names of grants: %q", out)
	}
	touch(t, gate)
	wantLoad(t, decode[loaded](t, victim.lines(2)[1]), "", 2*gib, 2*gib)
	m.looks(2)
	if g := m.grant("victim"); g.Level != "userspace" {
		t.Errorf("level %q: %s", g.Level, g.LevelReason)
	}
}

// Programs of every user count in a grant that is theirs: those that root's program starts as another user, and those
// of a user that may mount and is not root.
func TestCountersOfEveryUserInTheGrant(t *testing.T) {
	t.Parallel()
	m := newPreloading(t, "")
	if err := os.Chmod(filepath.Join(m.dir, "kerf.sock"), 0o777); err != nil {
		t.Fatal(err)
	}
	kerf, gpuload := asNobody(t, m)
	hungry := []string{gpuload, "--json", "--alloc", "6GiB", "--step", "256MiB", "--hold", "1h"}
	dropped := m.run(flags("--memory 4GiB --name dropped"),
		append([]string{"setpriv", "--reuid", "1234", "--regid", "1234", "--clear-groups"}, hungry...))
	wantLoad(t, dropped.loads(1)[0], oom, 4*gib-contextT4-256*mib, 4*gib)
	dropped.end()
	mayMount := func(c *exec.Cmd) { c.SysProcAttr.AmbientCaps = []uintptr{capSysAdmin} }
	user := m.run(flags("--memory 4GiB --name user --min-enforcement userspace"), hungry, asUser(1234, 1234),
		withProgram(kerf),
		mayMount)
	wantLoad(t, user.loads(1)[0], oom, 4*gib-contextT4-256*mib, 4*gib)
	info, err := os.Stat(m.folderOf(m.grant("user").ID))
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 1234 || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is of user %d with mode %v", owner, info.Mode())
	}
	if out := asStranger(t, `rm -f "$1"; mv "$1" "$1.x"; echo > "$1"; cat "$1" && echo done`,
		m.folderOf(m.grant("user").ID)+"/region/limits"); strings.Count(out, "denied") != 3 ||
		!strings.Contains(out, "done") {
		t.Errorf("the caps, for the grant's user outside of the grant: %q", out)
	}
}

// A program that fills, truncates and punches its own usage file harms its own grant alone, which shows unknown usage.
// Others get grants meanwhile, and a killed agent comes back, with the program alive and after its end.
func TestUsageFileTakesNoRoomFromOthers(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", driver: "r580", noAgent: true, disk: 8 * mib})
	m.agentFlags = []string{"--config", m.write(head +
		"spec:\n  pools:\n  - {name: default, backends: [driver, libkerf, reactive]}\n")}
	m.startAgent()
	m.ready()
	neighbour := m.run(flags("--memory 4GiB --name neighbour"), load("--alloc 3GiB --hold 1h"))
	wantLoad(t, neighbour.loads(1)[0], "", 3*gib, 3*gib)
	before := m.free()
	fill := `cd "` + m.dir +
		`/client/$KERF_GRANT"; echo in; while :; do truncate -s 0 usage; truncate -s 1G usage; fallocate -l ` + pages +
		` usage; dd if=/dev/zero of=usage bs=64k count=64 conv=notrunc; touch more; done 2>/dev/null`
	attacker := m.run(flags("--memory 4GiB --name attacker"), []string{"sh", "-c", fill})
	attacker.lines(1)
	for range 3 {
		eventually(t, "level unknown of the attacker", func() error {
			if g := m.grant("attacker"); g.Level != "unknown" {
				return fmt.Errorf("%+v", g)
			}
			return nil
		})
		other := m.run(flags("--memory 1GiB"), load("--alloc 512MiB"))
		if r := other.wait(); r.code != 0 {
			t.Errorf("a program of another grant: %v", r)
		}
		m.restartAgent()
	}
	if now := m.free(); now+64<<10 < before {
		t.Errorf("%d bytes are free on the agent's disk, %d before", now, before)
	}
	attacker.end()
	eventually(t, "end of the attacker's grant", func() error {
		if _, there := m.state().grant("attacker"); there {
			return errors.New("it is there")
		}
		return nil
	})
	for range 3 {
		m.restartAgent()
	}
	if g := m.grant("neighbour"); !neighbour.running() || g.Level != "userspace" || g.Used == nil || *g.Used != 3*gib+
		contextT4 {
		t.Errorf("the neighbour runs: %v, %+v", neighbour.running(), g)
	}
}

// An agent starts on a disk without room: it keeps its grants and refuses new ones with the reason. Once there is room
// it goes on by itself.
func TestStartWithoutRoomOnTheDisk(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", driver: "r580", noAgent: true, disk: 8 * mib})
	m.agentFlags = []string{"--config", m.write(head +
		"spec:\n  pools:\n  - {name: default, backends: [driver, libkerf, reactive]}\n")}
	m.startAgent()
	m.ready()
	runs := m.run(flags("--memory 4GiB --name runs"), load("--alloc 3GiB --hold 1h"))
	wantLoad(t, runs.loads(1)[0], "", 3*gib, 3*gib)
	full := filepath.Join(m.dir, "others")
	if err := os.WriteFile(full, make([]byte, 16*mib), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	for range 3 {
		m.killAgent()
		m.startAgent()
		if r := m.kerf("status", "--wait", "grants=1", "--timeout", patience.String()); r.code != 0 {
			t.Fatalf("no answer: %v\n%s", r, tail(m.agent.stderr()))
		}
		if s := m.state(); s.Ready || !strings.Contains(fmt.Sprint(s.NotReady), "no space left") {
			t.Errorf("ready: %v, %q", s.Ready, s.NotReady)
		}
		eventually(t, "level of the grant", func() error {
			if g := m.grant("runs"); g.Level != "userspace" || g.Used == nil || *g.Used != 3*gib+contextT4 {
				return fmt.Errorf("%+v", g)
			}
			return nil
		})
		if said := m.refused(flags("--memory 1GiB")); !strings.Contains(said, "no space left") {
			t.Errorf("a new grant: %q", said)
		}
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	m.ready()
	if r := m.run(flags("--memory 1GiB"), load("--alloc 512MiB")).wait(); r.code != 0 {
		t.Errorf("a program once there is room: %v", r)
	}
}
