// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// limitHook is the name of NVIDIA's hook that sets a limit from the container's environment.
const limitHook = "apply-cuda-memory-limits"

// newForeign is a machine whose CDI spec NVIDIA's toolkit made, with an agent that serves containers.
func newForeign(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t, setup{hardware: usualHardware, driver: "r615", noAgent: true})
	m.agentFlags = []string{
		"--containers", "--cdi-source-dirs", m.toolkitSpec(), "--cdi-dir", m.work + "/cdi", "--hook-dir",
		m.work + "/opt",
	}
	if err := os.Mkdir(m.work+"/cdi", 0o755); err != nil {
		t.Fatal(err)
	}
	m.startAgent()
	m.ready()
	eventually(t, "Kerf's CDI spec of the GPUs",
		func() error { _, err := os.Stat(m.work + "/cdi/kerf.dev-gpu.json"); return err })
	return m
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
	for _, hook := range []string{"create-symlinks", "enable-cuda-compat", "update-ldcache",
		"disable-device-node-modification"} {
		if !bytes.Contains(from, []byte(hook)) || !bytes.Contains(made, []byte(hook)) {
			t.Errorf("hook %s: in the toolkit's spec %t, in Kerf's %t", hook, bytes.Contains(from, []byte(hook)),
				bytes.Contains(made, []byte(hook)))
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
			t.Errorf("with REQUEST alone the hard limit is %s and the soft one %d: the hook does no harm here", hard,
				soft)
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
			if env := c.spec().Process.Env; slices.ContainsFunc(env,
				func(v string) bool { return strings.HasPrefix(v, "NVIDIA_GPU_MEMORY") }) {
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
