// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const (
	mib = uint64(1) << 20
	gib = uint64(1) << 30
	// nogroup is what a user without rights has as group here.
	nogroup = 65534
)

// setup says what a machine is made of; the zero value is eight H100 on a driver that limits memory.
type setup struct {
	hardware, driver string
	// sharing is how processes share the time of a GPU, "" for slices.
	sharing    string
	agentFlags []string
	// unlimited: the driver has limits of memory that do not work, so that the next backend of a list enforces shares.
	unlimited bool
	// agentProgram is the agent's executable, "" for the one that was built.
	agentProgram string
	// noDriver and noAgent leave out what the test starts itself.
	noDriver, noAgent bool
	// disk is the size of the file system that the agent's directory lies on, in bytes; 0: that of /tmp.
	disk uint64
}

// machine is one simulated machine with its agent, as one test uses it.
type machine struct {
	t *testing.T
	*running
}

// running is what the tests that share a machine have in common.
type running struct {
	setup
	// base holds the other three: the simulated driver's directory, the agent's, and one for files.
	base, sim, dir, work string
	env                  []string
	// wrap is a command that starts the agent, whose path and flags follow.
	wrap  []string
	agent *proc
	// agents are all that were started; they end after the runs, with the machine.
	agents []*proc
	// bootFile is what agents find as the node's boot id, "" for the node's own; boots counts the restarts of the node.
	bootFile string
	boots    int
	// moments are those at which agents were killed, with how often.
	moments map[moment]int
	// parent is the cgroup that holds the grants' cgroups, once one was seen.
	parent string
}

// newMachine starts driver and agent and waits until the agent is ready. At the end of the test everything
// is stopped, and what should be gone is looked for.
func newMachine(t *testing.T, s setup) *machine {
	t.Helper()
	needRoot(t)
	if s.hardware == "" {
		s.hardware = "h100x8"
	}
	if s.driver == "" {
		s.driver = "r615"
	}
	if s.driver == "r580" && *attackedDriver == "r615" {
		s.driver, s.unlimited = "r615", true
	}
	base, err := os.MkdirTemp("/tmp", "kf") // short: socket paths have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t, &running{setup: s, base: base, sim: base + "/s", dir: base + "/a", work: base + "/w"}}
	t.Cleanup(m.cleanUp)
	if err := errors.Join(os.Chmod(base, 0o755), os.Mkdir(m.work, 0o755)); err != nil {
		t.Fatal(err)
	}
	if s.disk > 0 {
		m.mountDisk()
	}
	m.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + m.work, "LC_ALL=C", "TERM=dumb",
		"LD_LIBRARY_PATH=" + m.sim + "/lib", "NVIDIA_DEV_ROOT=" + m.sim, "KERF_TEST_PID_NAMESPACE=" + pidSpace(t),
	}
	if !s.noDriver {
		m.startDriver()
	}
	if !s.noAgent {
		m.startAgent()
		m.ready()
	}
	return m
}

// mountDisk puts the agent's directory on a separate disk, as small as the test wants it.
func (m *machine) mountDisk() {
	m.t.Helper()
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := syscall.Mount("disk", m.dir, "tmpfs", 0, fmt.Sprintf("mode=0755,size=%d", m.disk)); err != nil {
		m.t.Fatalf("mount a disk for the agent: %v", err)
	}
}

// in is the same machine for a subtest, whose failures and processes are its own.
func (m *machine) in(t *testing.T) *machine { return &machine{t, m.running} }

func (m *machine) startDriver() {
	m.t.Helper()
	r := call(m.t, m.env, program("gpusim"), "start", "--machine", m.hardware, "--driver", m.driver, "--dir", m.sim,
		"--no-costs", "--sharing", cmp.Or(m.sharing, "slices"))
	if r.code != 0 {
		m.t.Fatalf("gpusim start: %v", r)
	}
	if m.unlimited {
		m.cannotLimit(m.driver)
	}
}

// killDriver ends the simulated driver without warning, as a crash would.
func (m *machine) killDriver() {
	m.t.Helper()
	pid := m.driverPID()
	if pid <= 0 {
		m.t.Fatal("no simulated driver runs")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		m.t.Fatalf("kill gpusim %d: %v", pid, err)
	}
	eventually(m.t, "end of gpusim", func() error {
		if dead(pid) {
			return nil
		}
		return errors.New("still there")
	})
}

// driverPID is 0 when no simulated driver runs here.
func (m *machine) driverPID() int {
	data, err := os.ReadFile(m.sim + "/gpusim.pid")
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || dead(pid) {
		return 0
	}
	return pid
}

// dead tells a process that is gone or only waits to be reaped.
func dead(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}

// startAgent starts the agent, with further variables such as failpoints; it does not wait.
func (m *machine) startAgent(env ...string) {
	m.t.Helper()
	m.agent = m.anAgent(m.dir, env...)
}

// stateDir is where the agent on a directory keeps what outlives a reboot.
func stateDir(dir string) string { return dir + ".state" }

// anAgent starts an agent on any directory.
func (m *machine) anAgent(dir string, env ...string) *proc {
	m.t.Helper()
	argv := append([]string{cmp.Or(m.agentProgram, program("kerf-agent")), "--run-dir", dir, "--state-dir",
		stateDir(dir)},
		m.agentFlags...)
	argv = append(slices.Clone(m.wrap), argv...)
	env = append(slices.Clone(m.env), env...)
	if m.bootFile != "" {
		argv = append([]string{os.Args[0], helperBoot, m.bootFile}, argv...)
		env = append(env, helperEnv+"=1")
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	p := launch(m.t, m.work, "agent", cmd)
	m.agents = append(m.agents, p)
	return p
}

// killAgent is SIGKILL at any time.
func (m *machine) killAgent() {
	m.t.Helper()
	m.agent.signal(syscall.SIGKILL)
	<-m.agent.exited
}

// restartAgent kills the agent, starts it again and waits until it is ready.
func (m *machine) restartAgent(env ...string) {
	m.t.Helper()
	m.killAgent()
	m.startAgent(env...)
	m.ready()
}

// kerf runs a command of kerf to its end.
func (m *machine) kerf(args ...string) result {
	m.t.Helper()
	return call(m.t, m.env, program("kerf"), append([]string{"--run-dir", m.dir}, args...)...)
}

// gpusim runs a command of gpusim on this machine's driver.
func (m *machine) gpusim(command string, args ...string) result {
	m.t.Helper()
	return call(m.t, m.env, program("gpusim"), append([]string{command, "--dir", m.sim}, args...)...)
}

// set injects a fault; it must succeed.
func (m *machine) set(args ...string) {
	m.t.Helper()
	if r := m.gpusim("set", args...); r.code != 0 {
		m.t.Fatalf("gpusim set %q: %v", args, r)
	}
}

// cleanUp stops everything and checks that nothing is left. The runs were killed before.
func (m *machine) cleanUp() {
	if m.t.Failed() {
		m.show()
	}
	if m.agent != nil && !m.agent.running() && !m.t.Failed() {
		m.startAgent() // one that finds what a killed one left cleans it up
	}
	alive := m.agent != nil && m.agent.running()
	if alive && !m.t.Failed() {
		m.noGrants()
		if m.driverPID() != 0 {
			checkInvariants(m.t, m)
		}
		m.agent.signal(syscall.SIGTERM)
		if r := m.agent.wait(); r.code != 0 {
			m.t.Errorf("agent on SIGTERM: exit %d, signal %v", r.code, r.signal)
		}
	}
	for _, a := range m.agents {
		a.kill()
	}
	m.removeCgroups(alive)
	if pid := m.driverPID(); pid != 0 {
		if r := m.gpusim("stop"); r.code != 0 {
			m.t.Errorf("gpusim stop: %v", r)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	m.unmount(alive)
	_ = os.RemoveAll(m.base)
}

// unmount takes away what is mounted below the machine's folder. An agent that ended properly has left nothing but its
// disk.
func (m *machine) unmount(mustBeNone bool) {
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		m.t.Error(err)
	}
	for _, line := range slices.Backward(strings.Split(string(table), "\n")) {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.HasPrefix(fields[1], m.base+"/") {
			continue
		}
		if mustBeNone && fields[1] != m.dir && !m.t.Failed() {
			m.t.Errorf("left mounted: %s", line)
		}
		if err := syscall.Unmount(fields[1], syscall.MNT_DETACH); err != nil {
			m.t.Error(err)
		}
	}
}

// removeCgroups removes the cgroup above the grants; with an agent that ended the grants properly there is
// nothing in it.
func (m *machine) removeCgroups(mustBeEmpty bool) {
	if m.parent == "" {
		m.parent = m.parentFromLogs()
	}
	if m.parent == "" { // nothing was ever granted
		return
	}
	if m.parent == unified(m.t) {
		m.t.Fatal("a test put a container into a cgroup at the root, whose other children are not the test's")
	}
	left := children(m.parent)
	if mustBeEmpty && len(left) > 0 && !m.t.Failed() {
		m.t.Errorf("cgroups left below %s: %q", m.parent, left)
	}
	for _, c := range left {
		removeTree(filepath.Join(m.parent, c))
	}
	_ = os.Remove(m.parent)
}

var leaseTaken = regexp.MustCompile(`msg="activated grant".* cgroup=(\S+)/[^/\s]+ `)

// parentFromLogs is for tests that never looked at a grant while it lived.
func (m *machine) parentFromLogs() string {
	logs, _ := filepath.Glob(m.work + "/agent-*.err")
	for _, file := range logs {
		text, _ := os.ReadFile(file)
		if found := leaseTaken.FindSubmatch(text); found != nil {
			return string(found[1])
		}
	}
	return ""
}

// removeTree removes a cgroup and those below it.
func removeTree(dir string) {
	for _, c := range children(dir) {
		removeTree(filepath.Join(dir, c))
	}
	_ = os.Remove(dir)
}

// children are the names of a cgroup's children.
func children(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// show logs what a person wants to see of a failed test.
func (m *machine) show() {
	if m.agent != nil {
		m.t.Logf("agent's log:\n%s", tail(m.agent.stderr()))
		if m.agent.running() {
			m.t.Logf("status:\n%s", m.kerf("status", "-o", "wide"))
		}
	}
	if log, err := os.ReadFile(m.sim + "/gpusim.log"); err == nil {
		m.t.Logf("gpusim's log:\n%s", tail(string(log)))
	}
	if m.driverPID() != 0 {
		m.t.Logf("processes by the driver: %s\nlimits: %s", m.gpusim("processes", "-o", "json").out,
			m.gpusim("limits", "-o", "json").out)
	}
}

func tail(s string) string {
	const most = 6000
	if len(s) > most {
		return "..." + s[len(s)-most:]
	}
	return s
}

// decode reads a JSON document that a command printed.
func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, text)
	}
	return v
}
