// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// withHooks is a container of which the runtime tells no CDI devices, only the hooks that they brought.
func withHooks(name string, calls ...[]string) *api.Container {
	c := containerOf(name)
	c.Hooks = &api.Hooks{}
	for _, args := range calls {
		c.Hooks.CreateRuntime = append(c.Hooks.CreateRuntime, &api.Hook{Path: "/opt/kerf/v1/kerf-hook", Args: args})
	}
	return c
}

func activated(ask ...string) []string {
	return append([]string{"kerf-hook", "activate", "--socket", "/run/kerf/hook.sock"}, ask...)
}

// containerd before 2.3 tells plugins of no CDI devices, and of the hooks that they brought.
func TestRuntimeThatTellsOfHooksAlone(t *testing.T) {
	c := newContainerd(t)
	c.version = "v2.1.4"
	c.start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	pod := podOf("train")
	b.know(specOf("train", memory("train", sharing.ContainerApp, "70")))
	guarded := withHooks("train", activated(), activated("--request", "gpu-memory-gib:10"))
	a, err := c.create(pod, guarded)
	if err != nil || len(a.GetCDIDevices()) != 1 {
		t.Fatalf("got %v, %v", a, err)
	}
	if d := cmp.Diff([]sharing.ResourceRequest{{Resource: "gpu-memory-gib", Count: 10}},
		b.node.asked["id-train"].Requests); d != "" {
		t.Error(d)
	}
	if a, err := c.create(pod, withHooks("other", []string{"ldconfig", "activate"})); err != nil ||
		len(a.GetCDIDevices()) != 0 {
		t.Errorf("a container with another's hook got %v, %v", a, err)
	}
	if names := cdiNames(guarded); !cmp.Equal(names,
		[]string{sharing.HookDevice, sharing.CDIRequest + "=gpu-memory-gib:10"}) {
		t.Errorf("names %q", names)
	}
}
