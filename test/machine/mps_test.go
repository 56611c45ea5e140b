// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// newMPS is a machine whose driver cannot limit memory and whose pool lists MPS. Daemons outlive the agent, so the test
// ends them.
func newMPS(t *testing.T, more string) *machine {
	t.Helper()
	return newMPSOn(t, "t4x4", "r580", "driver, mps, reactive", more)
}

func newMPSOn(t *testing.T, hardware, driver, backends, more string) *machine {
	t.Helper()
	m := newMachine(t, setup{hardware: hardware, driver: driver, noAgent: true})
	m.cannotLimit(driver)
	m.env = append(m.env, "PATH="+m.sim+"/bin:"+os.Getenv("PATH"))
	m.agentFlags = []string{"--config", m.write(head + "spec:\n  pools:\n  - {name: default, backends: [" + backends +
		"]" + more + "}\n")}
	m.startAgent()
	m.ready()
	if strings.Contains(backends, "mps") {
		for _, g := range m.state().GPUs {
			m.offersClient(g.Index)
		}
	}
	t.Cleanup(func() {
		for _, pid := range m.daemons() {
			// A server ends with its daemon, and may have by now.
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Error(err)
			}
		}
	})
	return m
}

// offersClient waits until a GPU gives shares of level userspace: where the daemon by which MPS was tried was slow, it
// is tried again.
func (m *machine) offersClient(gpu int) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("MPS on GPU %d", gpu), func() error {
		if got := m.gpu(gpu).Levels; !slices.Contains(got, "userspace") {
			return fmt.Errorf("levels %v", got)
		}
		return nil
	})
}

// daemons are the control daemons and servers of the machine. The program by which the agent asks a daemon, at each of
// its looks, has a daemon's name and environment, but not its command line.
func (m *machine) daemons() (pids []int) {
	m.t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		m.t.Fatal(err)
	}
	for _, dir := range dirs {
		env, err := os.ReadFile(dir + "/environ")
		comm, err2 := os.ReadFile(dir + "/comm")
		line, err3 := os.ReadFile(dir + "/cmdline")
		name, args, _ := strings.Cut(string(line), "\x00")
		serves := filepath.Base(name) == "nvidia-cuda-mps-server" || args == "-f\x00"
		if errors.Join(err, err2, err3) == nil && serves && string(comm) == "nvidia-cuda-mps\n" &&
			strings.Contains(string(env), "CUDA_MPS_PIPE_DIRECTORY="+m.dir+"/") {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}

// MPS holds a program to its memory, shows what that is worth, outlives the agent, and ends with the last attachment.
func TestMPSHolds(t *testing.T) {
	t.Parallel()
	m := newMPS(t, "")
	pin := " --gpu-uuid " + m.uuid(0)
	first := m.run(flags("--memory 4GiB --percent 30 --name first"+pin), load("--alloc 6GiB --step 256MiB --hold 1h"))
	got := first.loads(1)[0]
	if got.Error == nil || *got.Error != "CUDA_ERROR_OUT_OF_MEMORY" || got.Allocated > 4*gib ||
		got.Allocated < 4*gib-gib/2 {
		t.Errorf("under MPS it has %+v, want nearly 4 GiB and no more", got)
	}
	if s := first.granted(); s.Level != "userspace" {
		t.Errorf("level %q (%s)", s.Level, s.LevelReason)
	}
	second := m.run(flags("--memory 8GiB --name second"+pin), load("--alloc 7GiB --hold 1h"))
	all := second.loads(1)[0]
	wantLoad(t, all, "", 7*gib, 7*gib)
	if got.Processors == 0 || got.Processors != all.Processors*30/100 {
		t.Errorf("with 30 percent it sees %d multiprocessors, one without a percent %d", got.Processors, all.Processors)
	}
	before := fmt.Sprint(m.daemons())
	if len(m.daemons()) != 2 {
		t.Errorf("one domain has the processes %s, want a daemon and a server", before)
	}
	for _, pid := range m.daemons() { // where the driver's library is not in the linker's cache, a server needs this
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err != nil ||
			!strings.Contains("\x00"+string(env), "\x00LD_LIBRARY_PATH="+m.sim+"/lib") {
			t.Errorf("process %d of MPS lacks the driver's library path: %q, %v", pid, env, err)
		}
	}
	m.restartAgent()
	m.ready()
	if now := fmt.Sprint(m.daemons()); now != before || !first.running() || !second.running() {
		t.Errorf("after the agent's restart: processes %s, %s before; the programs run: %v %v", now, before,
			first.running(), second.running())
	}
	first.end()
	second.end()
	m.noGrants()
	eventually(t, "end of the daemon", func() error {
		if left := m.daemons(); len(left) > 0 {
			return fmt.Errorf("processes %v", left)
		}
		return nil
	})
	checkInvariants(t, m)
}

// A program that drops its pipe directory does not run without a limit: in exclusive mode it gets no context.
func TestMPSWithoutItsPipe(t *testing.T) {
	t.Parallel()
	m := newMPS(t, ", onOverCap: kill")
	r := m.run(flags("--memory 4GiB"), []string{"env", "-u", "CUDA_MPS_PIPE_DIRECTORY", program("gpuload"), "--json",
		"--alloc", "6GiB"})
	if got := r.wait(); got.code == 0 || strings.Contains(r.stdout(), `"allocated_bytes":6442450944`) {
		t.Errorf("without its pipe: %v, %s", got, r.stdout())
	}
	m.noGrants()
	checkInvariants(t, m)
}

// A grant that MPS holds shrinks while it has no client, and who connects then gets the lower limit; with a client it
// does not, and it grows for who is started with more.
func TestMPSLimit(t *testing.T) {
	t.Parallel()
	m := newMPS(t, "")
	gate := m.dir + "/gate"
	r := m.run(flags("--memory 4GiB --name one"),
		[]string{"sh", "-c", "until [ -e " + gate + " ]; do sleep 0.05; done; exec " +
			strings.Join(load("--alloc 3GiB --step 64MiB --hold 1h"), " ")})
	r.granted()
	if got := m.kerf("resize", "one", "--memory", "2GiB"); got.code != 0 {
		t.Fatalf("without a client: %v", got)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.loads(1)[0]; got.Error == nil || got.Allocated > 2*gib || got.Allocated < gib {
		t.Errorf("under 2 GiB it has %+v", got)
	}
	if got := m.kerf("resize", "one", "--memory", "1GiB"); got.code == 0 || !strings.Contains(got.err, "pid ") {
		t.Errorf("with a client: %v", got)
	}
	if got := m.kerf("resize", "one", "--memory", "6GiB"); got.code != 0 ||
		!strings.Contains(got.out, "note: its processes (pid ") {
		t.Errorf("more than it was started with: %v", got)
	}
	r.end()
	m.noGrants()
}

// On a driver as slow as an H200's, a killed client stays listed for a moment after the end of its grant. Kerf does not
// take it for an unmanaged process.
func TestMPSOnASlowDriver(t *testing.T) {
	t.Parallel()
	m := newMPS(t, ", onOverCap: kill, onUnmanagedProcess: kill")
	m.set("gpu=all", "cost.context=130ms", "cost.list=60ms", "cost.exit=65ms", "cost.stream=512KiB",
		"cost.unlisted=9011KiB")
	pin := " --gpu-uuid " + m.uuid(0)
	for i := range 5 {
		r := m.run(flags(fmt.Sprintf("--memory 4GiB --name p%d", i)+pin), load("--alloc 3GiB --hold 1h"))
		wantLoad(t, r.loads(1)[0], "", 3*gib, 3*gib)
		r.end()
	}
	m.noGrants()
	m.looks(3)
	if n := m.killed(); n != 0 {
		t.Errorf("Kerf killed %d processes, and each had its grant", n)
	}
	for _, w := range m.state().Warnings {
		if strings.Contains(w, "without a grant") || strings.Contains(w, "unattributed") {
			t.Errorf("warning %q", w)
		}
	}
	checkInvariants(t, m)
}
