// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// trainer is a program in a grant that takes memory and has two forked children with its device files open. A shell
// starts it, waits for its end, and runs next when it reads a line from the named pipe gate. The shell starts no other
// process until then, so that the processes of the grant stay the same.
type trainer struct {
	*run
	m    *machine
	pid  int
	gate string
}

func (m *machine) trainer(name, more, alloc, next string) *trainer {
	m.t.Helper()
	gate := filepath.Join(m.work, name+".gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		m.t.Fatal(err)
	}
	script := "exec 3<>" + gate + "; " + strings.Join(load("--alloc "+alloc+" --loaders 2 --hold 1h"), " ") +
		" 3<&- & wait $!; read _ <&3; " + next
	r := m.run(flags("--memory 2GiB --name "+name+more), []string{"sh", "-c", script})
	return &trainer{r, m, r.loads(1)[0].PID, gate}
}

// goOn lets the shell run what comes next.
func (t *trainer) goOn() {
	t.m.t.Helper()
	pipe, err := os.OpenFile(t.gate, os.O_RDWR, 0) // for both, so that opening it does not wait
	if err != nil {
		t.m.t.Fatal(err)
	}
	if _, err := pipe.WriteString("go\n"); err != nil {
		t.m.t.Error(err)
	}
	if err := pipe.Close(); err != nil {
		t.m.t.Error(err)
	}
}

// die kills the trainer alone, and waits until the shell has collected it.
func (t *trainer) die() {
	t.m.t.Helper()
	if err := syscall.Kill(t.pid, syscall.SIGKILL); err != nil {
		t.m.t.Fatal(err)
	}
	eventually(t.m.t, "the trainer's end", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", t.pid))
		if err == nil && !strings.Contains(string(stat), ") Z ") {
			return fmt.Errorf("it is there: %s", stat)
		}
		return nil
	})
}

// replaced has a shell, which is in no grant, run a command that takes the trainer's PID ($P), once that is free.
func (t *trainer) replaced(command string) {
	t.m.t.Helper()
	eventually(t.m.t, "the trainer's PID", func() error {
		if err := syscall.Kill(t.pid, 0); err == nil {
			return fmt.Errorf("process %d is there", t.pid)
		}
		return nil
	})
	other := exec.Command("sh", "-c", fmt.Sprintf("P=%d; exec %s", t.pid, command))
	begin(t.m.t, t.m.work, "other", other)
}

// loaders are the grant's processes that are idle gpuloads.
func (t *trainer) loaders() (pids []int) {
	t.m.t.Helper()
	for _, pid := range t.m.grant(t.name()).PIDs {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && filepath.Base(exe) == "gpuload" && pid != t.pid {
			pids = append(pids, pid)
		}
	}
	return pids
}

// name is that of its grant.
func (t *trainer) name() string { return strings.TrimSuffix(filepath.Base(t.gate), ".gate") }

// wantUsed waits until status shows what a grant uses, in bytes from least to most.
func (m *machine) wantUsed(name string, least, most uint64) {
	m.t.Helper()
	eventually(m.t, "the use of "+name, func() error {
		g := m.grant(name)
		if g.Used == nil || *g.Used < least || *g.Used > most {
			return fmt.Errorf("it uses %s, want %d to %d", inWords(g.Used), least, most)
		}
		return nil
	})
}

// A trainer is killed, and its data-loader workers live on with its device files open. Its memory stays charged to its
// grant, status says so and names who keeps it, and it is free once the workers have ended. Kerf kills no process for
// memory within the cap.
func TestOrphanedMemoryIsCharged(t *testing.T) {
	t.Parallel()
	for _, b := range backends() {
		if b.name == "mps" {
			continue // its server has the memory, and frees it when a client ends
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			m := b.make(t, usualHardware, b.driver, "")
			tr := m.trainer("orphan", " --gpu-uuid "+m.uuid(0), "1536MiB", "wait")
			m.wantUsed("orphan", 3*gib/2, 2*gib)
			tr.die()
			if b.name != "driver" { // which needs no watch
				m.looks(10)
			}
			m.wantUsed("orphan", 3*gib/2, 2*gib)
			loaders := tr.loaders()
			if len(loaders) != 2 || !tr.running() {
				t.Fatalf("after the trainer's end %v are left", loaders)
			}
			if b.name != "driver" { // a driver with limits counts it by itself
				m.wantWarning("belongs to processes that have ended; PIDs " + numbersOf(loaders))
			}
			if held := m.memory().used; held < 3*gib/2 {
				t.Errorf("the driver has freed it: %d bytes are held", held)
			}
			for _, pid := range loaders {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			}
			m.wantUsed("orphan", 0, 0)
			tr.goOn()
			tr.wait()
			m.noGrants()
		})
	}
}

func numbersOf(pids []int) string {
	slices.Sort(pids)
	var text []string
	for _, pid := range pids {
		text = append(text, strconv.Itoa(pid))
	}
	return strings.Join(text, ", ")
}

// A process that has nothing to do with GPUs gets the PID of a killed trainer, whose entry the driver still lists. It
// is in the grant, or in no grant on a node that ends unmanaged processes. It survives while others are killed for the
// grant's usage.
func TestInnocentWithAReusedPIDLives(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	setpid := checkProgram(t, dir, "setpid")
	for _, inside := range []bool{true, false} {
		t.Run(fmt.Sprintf("in the grant %v", inside), func(t *testing.T) {
			t.Parallel()
			m := newWatched(t, ", onOverCap: kill, onUnmanagedProcess: kill")
			more := strings.Join(load("--alloc 1536MiB --hold 1h"), " ") + "; wait"
			pidFile := filepath.Join(m.work, "innocent")
			innocent := setpid + " $P sh -c 'echo $$ >" + pidFile + "; exec sleep 3600'"
			next := "P=$!; wait $P; "
			if inside {
				next += innocent + " & "
			}
			next += "until [ -s " + pidFile + " ]; do sleep 0.05; done; " + more
			tr := m.trainer("orphan", " --gpu-uuid "+m.uuid(0), "1536MiB", next)
			m.wantUsed("orphan", 3*gib/2, 2*gib) // so that the agent has seen it while it ran
			cgroup := m.grant("orphan").Cgroup
			tr.die()
			tr.goOn()
			if !inside {
				tr.replaced(innocent)
			}
			eventually(t, "the innocent", func() error {
				text, err := os.ReadFile(pidFile)
				if err == nil && strings.TrimSpace(string(text)) != strconv.Itoa(tr.pid) {
					err = fmt.Errorf("it has the PID %s", text)
				}
				return err
			})
			eventually(t, "a kill", func() error {
				if killed, _ := m.watched().since(watchCounts{}); killed == "" {
					return errors.New("nothing was killed")
				}
				return nil
			})
			m.looks(10)
			exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", tr.pid))
			if err != nil || !strings.Contains(exe, "sleep") && !strings.Contains(exe, "coreutils") &&
				!strings.Contains(exe, "busybox") {
				t.Errorf("the innocent process %d is gone: %q %v", tr.pid, exe, err)
			}
			tr.end()
			m.endsWith(cgroup)
		})
	}
}
