// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

const (
	// memory is what each job's grant has, and begins what the job takes at first.
	memory, begins = "2GiB", "256MiB"
	// little and tooMuch are what a job takes more each time. The GPU would have room for either.
	little, tooMuch = "64MiB", "4GiB"
)

// containerID is what runc knows the container by.
const containerID = "container-of-the-guest"

// load is gpuload: it takes so much more for each line that it reads, and stays.
func load(more string) []string {
	return []string{gpuload, "--json", "--alloc", begins, "--more", more, "--hold", "1h"}
}

// capped is a command with a grant of this name.
func (m *machine) capped(name string, argv []string) []string {
	return append([]string{kerf, "run", "--name", name, "--memory", memory, "--min-enforcement", m.level, "--"},
		argv...)
}

// newJob has two pipes, by which a job is asked and answers.
func (m *machine) newJob(name, more string) *job {
	m.Helper()
	j := &job{unit: name, greedy: more == tooMuch}
	var files [2]*os.File
	for i, end := range []string{".in", ".out"} {
		pipe := filepath.Join("/run", name+end)
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			m.Fatal(err)
		}
		f, err := os.OpenFile(pipe, os.O_RDWR, 0) // both directions, so that it does not block
		if err != nil {
			m.Fatal(err)
		}
		m.Cleanup(func() { _ = f.Close() })
		files[i] = f
	}
	j.ask, j.out = files[0], files[1]
	j.answers = bufio.NewReader(files[1])
	return j
}

// startService starts a job as a service of systemd, with a further property of its unit.
func (m *machine) startService(name, property, more string) {
	m.Helper()
	argv := m.capped(name, load(more))
	if property == "Delegate=yes" { // the job divides its own cgroup before it calls Kerf
		divide :=
			`d=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/own && mkdir "$d" && echo 0 >"$d/cgroup.procs" && exec "$@"`
		argv = append([]string{"/bin/sh", "-c", divide, "sh"}, argv...)
	}
	j := m.newJob(name, more)
	m.service(j, property, argv)
	m.started(j)
}

// service runs a command as a transient service, whose input and output are the job's pipes.
func (m *machine) service(j *job, property string, argv []string) {
	m.Helper()
	args := []string{
		"--unit=" + j.unit, "--property=StandardInput=file:/run/" + j.unit + ".in",
		"--property=StandardOutput=file:/run/" + j.unit + ".out", "--property=StandardError=journal",
		"--setenv=LD_LIBRARY_PATH=" + sim + "/lib", "--setenv=NVIDIA_DEV_ROOT=" + sim,
	}
	if property != "" {
		args = append(args, "--property="+property)
	}
	m.must("systemd-run", append(append(args, "--"), argv...)...)
}

// startScope starts a job in a scope, as a login session or a terminal does.
func (m *machine) startScope(name, more string) {
	m.Helper()
	j := m.newJob(name, more)
	argv := append([]string{"--scope", "--unit=" + name, "--"}, m.capped(name, load(more))...)
	cmd := exec.Command("systemd-run", argv...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+sim+"/lib", "NVIDIA_DEV_ROOT="+sim)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = j.ask, j.out, os.Stderr
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	j.scope = cmd
	m.started(j)
}

// startContainer starts a job in a container, whose cgroup systemd makes for runc, and whose devices systemd filters.
func (m *machine) startContainer(name, more string) {
	m.Helper()
	j := m.newJob(name, more)
	j.container = true
	m.must("runc", "spec", "--bundle", bundle)
	file := filepath.Join(bundle, "config.json")
	text, err := os.ReadFile(file)
	if err != nil {
		m.Fatal(err)
	}
	var spec map[string]any
	if err := json.Unmarshal(text, &spec); err != nil {
		m.Fatal(err)
	}
	process, _ := spec["process"].(map[string]any)
	process["terminal"], process["args"] = false, load(more)
	process["args"].([]string)[0] = "/bin/gpuload"
	if text, err = json.Marshal(spec); err != nil {
		m.Fatal(err)
	}
	m.write(file, string(text))
	m.must(kerf, "oci", "patch", bundle, "--name", name, "--memory", memory)
	// A root file system that the kernel unpacked cannot be exchanged, only moved away from.
	m.service(j, "", []string{"runc", "--systemd-cgroup", "run", "--no-pivot", "--bundle", bundle, containerID})
	m.started(j)
	// Only this name is the container's own; its cgroup does not let it open the device.
	if err := syscall.Mknod(fmt.Sprintf("/proc/%d/root%s", j.pid, denied), syscall.S_IFCHR|0o666,
		deniedNumber); err != nil {
		m.Fatal(err)
	}
}

// started waits until the job has its memory, and notes what must not change from then on.
func (m *machine) started(j *job) {
	m.Helper()
	l, err := j.answer()
	if err != nil {
		m.unit(j.unit)
		m.Fatalf("job %s: %v", j.unit, err)
	}
	if l.Error != "" {
		m.Fatalf("job %s cannot have its first memory: %+v", j.unit, l)
	}
	j.has = l.Allocated
	if j.grant, err = m.grant(j.unit); err != nil {
		m.Fatal(err)
	}
	if len(j.grant.PIDs) == 0 || j.grant.Level != m.level {
		m.Fatalf("job %s: %+v", j.unit, j.grant)
	}
	j.pid = int(j.grant.PIDs[0])
	if j.cgroup, err = cgroupOf(j.pid); err != nil {
		m.Fatal(err)
	}
	m.Logf("job %s: process %d in %s, backend %s", j.unit, j.pid, j.cgroup, j.grant.Backend)
	m.jobs = append(m.jobs, j)
	m.before = m.limits()
}

// unit shows what systemd and the journal say of a unit.
func (m *machine) unit(name string) {
	m.Helper()
	out, _ := command("systemctl", "status", "--no-pager", "--full", "-n", "40", name+".service")
	m.Log(out)
}

// end ends a job as its user would, and waits for what started it.
func (m *machine) end(j *job) {
	m.Helper()
	if j.container { // as the first process of its PID namespace, it ignores what it has no handler for
		m.must("runc", "kill", containerID, "KILL")
		return
	}
	if j.scope == nil {
		m.must("systemctl", "stop", j.unit+".service")
		return
	}
	if err := j.scope.Process.Signal(syscall.SIGTERM); err != nil {
		m.Fatal(err)
	}
	_ = j.scope.Wait() // it ends by the signal
}
