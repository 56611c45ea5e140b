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
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// limitHook is the name of NVIDIA's hook that sets a limit from the container's environment.
const limitHook = "apply-cuda-memory-limits"

// newForeign is a machine whose CDI spec NVIDIA's toolkit made, with an agent that serves containers.
func newForeign(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t, setup{hardware: usualHardware, driver: "r615", noAgent: true})
	m.agentFlags = []string{
		"--containers", "--cdi-source-dirs", m.toolkitSpec(), "--cdi-dir", m.work + "/cdi", "--hook-dir", m.work + "/opt",
	}
	if err := os.Mkdir(m.work+"/cdi", 0o755); err != nil {
		t.Fatal(err)
	}
	m.startAgent()
	m.ready()
	eventually(t, "Kerf's CDI spec of the GPUs", func() error { _, err := os.Stat(m.work + "/cdi/kerf.dev-gpu.json"); return err })
	return m
}

// ociContainer is a container as an OCI runtime has it between create and start: a first process in a cgroup that bears
// the container's id, which waits, and a bundle.
type ociContainer struct {
	m          *machine
	id, bundle string
	dir        string // cgroup
	first      *proc
	start      *os.File // closing it starts the program
}

// container makes a container with a grant of 2 GiB on GPU 0. env are the tenant's variables; program runs at its start.
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
	state, err := json.Marshal(specs.State{Version: "1.0.2", ID: c.id, Status: specs.StateCreating, Pid: c.first.pid(), Bundle: bundle})
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

// TestToolkitSpec: the spec that NVIDIA's toolkit makes has its limit hook on each device, and Kerf's has none. Every
// other hook of it stays.
func TestToolkitSpec(t *testing.T) {
	t.Parallel()
	m := newForeign(t)
	from, err := os.ReadFile(m.work + "/cdi-source/nvidia.yaml")
	if err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadFile(m.work + "/cdi/kerf.dev-gpu.json")
	if err != nil {
		t.Fatal(err)
	}
	// Each GPU by index, by UUID, and once more in "all".
	if n := bytes.Count(from, []byte(limitHook)); n != 12 {
		t.Errorf("the toolkit's spec has its limit hook %d times, want 12", n)
	}
	if bytes.Contains(made, []byte(limitHook)) {
		t.Error("Kerf's spec has the limit hook")
	}
	for _, hook := range []string{"create-symlinks", "enable-cuda-compat", "update-ldcache", "disable-device-node-modification"} {
		if !bytes.Contains(from, []byte(hook)) || !bytes.Contains(made, []byte(hook)) {
			t.Errorf("hook %s: in the toolkit's spec %t, in Kerf's %t", hook, bytes.Contains(from, []byte(hook)), bytes.Contains(made, []byte(hook)))
		}
	}
}

// TestForeignLimitHook runs NVIDIA's own hook against the caps of containers, before and after Kerf's.
func TestForeignLimitHook(t *testing.T) {
	t.Parallel()
	m := newForeign(t)
	lift := []string{"NVIDIA_GPU_MEMORY_REQUEST=1"}
	tenant := m.work + "/tenant"
	m.writeBundle(tenant, lift)
	greedy := load("--alloc 4GiB --step 64MiB")
	// What the hook does where nothing stops it: it replaces a limit.
	t.Run("it lifts a limit", func(t *testing.T) {
		m := m.in(t)
		c := m.container("bare", nil, "true")
		m.writeBundle(m.work+"/set", []string{"NVIDIA_GPU_MEMORY_LIMIT=2048", "NVIDIA_GPU_MEMORY_REQUEST=0"})
		if r := c.nvidiaHook(m.work + "/set"); r.code != 0 {
			t.Fatalf("nvidia-cdi-hook: %v", r)
		}
		c.wantLimit("2048")
		if r := c.nvidiaHook(tenant); r.code != 0 {
			t.Fatalf("nvidia-cdi-hook: %v", r)
		}
		if hard, soft := c.limit(); hard != "none" || soft != mib {
			t.Errorf("with REQUEST alone the hard limit is %s and the soft one %d: the hook does no harm here", hard, soft)
		}
		c.kerfHooks() // so that the grant ends with the container
		c.wantLimit("2048")
	})
	for name, order := range map[string]func(t *testing.T, c *ociContainer){
		"after": func(t *testing.T, c *ociContainer) {
			c.kerfHooks()
			if r := c.nvidiaHook(c.bundle); r.code != 0 {
				t.Errorf("nvidia-cdi-hook: %v", r)
			}
		},
		"before": func(t *testing.T, c *ociContainer) {
			if r := c.nvidiaHook(c.bundle); r.code != 0 {
				t.Errorf("nvidia-cdi-hook: %v", r)
			}
			c.kerfHooks()
		},
		"before-of-a-foreign-spec": func(t *testing.T, c *ociContainer) {
			if r := c.nvidiaHook(tenant); r.code != 0 {
				t.Errorf("nvidia-cdi-hook: %v", r)
			}
			c.kerfHooks()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := m.in(t).container(name, lift, greedy...)
			if env := c.spec().Process.Env; slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "NVIDIA_GPU_MEMORY") }) {
				t.Errorf("the patched bundle has %q", env)
			}
			order(t, c)
			c.wantLimit("2048")
			if g, ok := c.m.state().grant(name); !ok || g.Level != "driver" {
				t.Errorf("grant %+v, %t", g, ok)
			}
			c.wantRefused()
		})
	}
	t.Run("variables that NRI emptied", func(t *testing.T) {
		m := m.in(t)
		c := m.container("emptied", nil, greedy...)
		m.writeBundle(m.work+"/empty", []string{"NVIDIA_GPU_MEMORY_LIMIT="})
		c.kerfHooks()
		if r := c.nvidiaHook(m.work + "/empty"); r.code == 0 {
			t.Errorf("nvidia-cdi-hook accepts an empty value: the container would start: %v", r)
		}
		c.wantLimit("2048")
	})
	t.Run("after Kerf's, of a foreign spec", func(t *testing.T) {
		m := m.in(t)
		c := m.container("late", nil, greedy...)
		c.kerfHooks()
		if r := c.nvidiaHook(tenant); r.code != 0 {
			t.Fatalf("nvidia-cdi-hook: %v", r)
		}
		eventually(t, "the cap is set again", func() error {
			if hard, soft := c.limit(); hard != "2048" || soft != 0 {
				return fmt.Errorf("hard limit %s, soft limit %d", hard, soft)
			}
			return nil
		})
		eventually(t, "level unknown", func() error {
			g, _ := m.state().grant("late")
			if g.Level != "unknown" || !strings.Contains(g.LevelReason, "raised the driver's limit") {
				return fmt.Errorf("level %s, %q", g.Level, g.LevelReason)
			}
			return nil
		})
		c.wantRefused()
	})
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
