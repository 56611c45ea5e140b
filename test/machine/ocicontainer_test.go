// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// ociContainer is a container as an OCI runtime has it between create and start: a first process in a cgroup that bears
// the container's id, which waits, and a bundle.
type ociContainer struct {
	m          *machine
	id, bundle string
	dir        string // cgroup
	first      *proc
	start      *os.File // closing it starts the program
}

// container makes a container with a grant of 2 GiB on GPU 0. env are the tenant's variables; program runs at its
// start.
func (m *machine) container(name string, env []string, program ...string) *ociContainer {
	m.t.Helper()
	c := &ociContainer{m: m, id: fmt.Sprintf("%s-%064x", name, os.Getpid()), bundle: m.work + "/" + name}
	m.writeBundle(c.bundle, env)
	if r := m.kerf("oci", "patch", c.bundle, "--memory", "2GiB", "--gpu-uuid", m.uuid(0), "--name", name); r.code != 0 {
		m.t.Fatalf("kerf oci patch: %v", r)
	}
	parent := filepath.Join(unified(m.t), "kerf-test-"+filepath.Base(m.base))
	c.dir = filepath.Join(parent, c.id)
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	group, err := os.Open(c.dir)
	if err != nil {
		m.t.Fatal(err)
	}
	defer group.Close()
	wait, start, err := os.Pipe()
	if err != nil {
		m.t.Fatal(err)
	}
	defer wait.Close()
	cmd := exec.Command("sh", append([]string{"-c", `read -r _; exec "$@"`, "sh"}, program...)...)
	cmd.Env, cmd.Stdin, c.start = m.env, wait, start
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	c.first = launch(m.t, m.work, name, cmd)
	m.t.Cleanup(func() {
		_ = start.Close()
		c.first.kill()
		eventually(m.t, "an empty cgroup", func() error { return os.Remove(c.dir) })
		_ = os.Remove(parent) // with the last container
		m.noGrants()
	})
	return c
}

// writeBundle writes an OCI bundle whose container has these variables.
func (m *machine) writeBundle(dir string, env []string) {
	m.t.Helper()
	text, err := json.Marshal(specs.Spec{
		Version: "1.0.2", Root: &specs.Root{Path: "rootfs"}, Linux: &specs.Linux{},
		Process: &specs.Process{Args: []string{"true"}, Cwd: "/", Env: append([]string{"PATH=/bin"}, env...)},
	})
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(dir+"/config.json", text, 0o644)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// spec is the bundle's.
func (c *ociContainer) spec() (s specs.Spec) {
	c.m.t.Helper()
	text, err := os.ReadFile(c.bundle + "/config.json")
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		c.m.t.Fatal(err)
	}
	return s
}

// hook runs one hook of the container, with the state as an OCI runtime tells it on standard input.
func (c *ociContainer) hook(bundle string, h specs.Hook) result {
	c.m.t.Helper()
	state, err := json.Marshal(specs.State{Version: "1.0.2", ID: c.id, Status: specs.StateCreating, Pid: c.first.pid(),
		Bundle: bundle})
	if err != nil {
		c.m.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], append([]string{helperOCIHook, unified(c.m.t), h.Path}, h.Args...)...)
	cmd.Env = append([]string{helperEnv + "=1"}, h.Env...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(state), &out, &errOut
	_ = cmd.Run() // the state tells
	return resultOf(cmd.ProcessState, out.String(), errOut.String())
}

// kerfHooks runs Kerf's hooks of the container.
func (c *ociContainer) kerfHooks() {
	c.m.t.Helper()
	hooks := c.spec().Hooks.CreateRuntime
	if len(hooks) == 0 {
		c.m.t.Fatal("the bundle has no createRuntime hook")
	}
	for _, h := range hooks {
		if r := c.hook(c.bundle, h); r.code != 0 {
			c.m.t.Fatalf("kerf-hook: %v", r)
		}
	}
}

// nvidiaHook runs NVIDIA's limit hook as its CDI spec has it, with the variables of that bundle.
func (c *ociContainer) nvidiaHook(bundle string) result {
	c.m.t.Helper()
	return c.hook(bundle, specs.Hook{
		Path: toolkit(c.m.t, "nvidia-cdi-hook"), Env: []string{"NVIDIA_CTK_DEBUG=false"},
		// From the simulated node's folder, the library finds that node.
		Args: []string{"nvidia-cdi-hook", limitHook, "--driver-root", c.m.sim + "/lib", "--gpu-id", c.m.uuid(0)},
	})
}

// limit is what the driver has for the container on GPU 0: the hard limit, and "none", and the soft one.
func (c *ociContainer) limit() (hard string, soft uint64) {
	c.m.t.Helper()
	for _, l := range c.m.limits() {
		if l.Cgroup != c.dir && !strings.HasSuffix(l.Cgroup, "/"+c.id) || l.GPU != c.m.uuid(0) {
			continue
		}
		if l.Hard == nil {
			return "none", l.Soft
		}
		return fmt.Sprint(*l.Hard / mib), l.Soft
	}
	return "not set", 0
}

// wantLimit requires the hard limit, in MiB, and no soft one.
func (c *ociContainer) wantLimit(want string) {
	c.m.t.Helper()
	if hard, soft := c.limit(); hard != want || soft != 0 {
		c.m.t.Errorf("the hard limit is %s MiB, the soft one %d bytes; want %s and none", hard, soft, want)
	}
}

// wantRefused starts the program, which asks for 4 GiB, and requires that it gets less than the cap of 2 GiB.
func (c *ociContainer) wantRefused() {
	c.m.t.Helper()
	if err := c.start.Close(); err != nil {
		c.m.t.Fatal(err)
	}
	got := decode[loaded](c.m.t, c.first.wait().out)
	if got.Allocated >= 2*gib || got.err() != oom {
		c.m.t.Errorf("the program got %d MiB, %s", got.Allocated/mib, got.err())
	}
}
