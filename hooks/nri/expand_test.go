// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

// editsOfGPU are those of a spec like NVIDIA's.
func editsOfGPU(sharing.Injection) (specs.ContainerEdits, error) {
	mode, gid, timeout := os.FileMode(0o666), uint32(44), 5
	return specs.ContainerEdits{
		Env: []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib", "EMPTY"},
		DeviceNodes: []*specs.DeviceNode{{Path: "/dev/nvidia0", Type: "c", Major: 195, FileMode: &mode, GID: &gid},
			{Path: "/dev/nvidiactl", Type: "c", Major: 195, Minor: 255}},
		Mounts: []*specs.Mount{{HostPath: "/usr/lib/libcuda.so.1", ContainerPath: "/usr/lib/libcuda.so.1",
			Options: []string{"ro", "bind"}, Type: "bind"}},
		Hooks: []*specs.Hook{{HookName: "createContainer", Path: "/usr/bin/nvidia-cdi-hook",
			Args: []string{"nvidia-cdi-hook", "update-ldcache"}, Timeout: &timeout}},
	}, nil
}

// CRI-O ignores the CDI devices of plugins, so its containers get what the devices change. Those of containerd get the
// devices' names.
func TestEditsForRuntime(t *testing.T) {
	for _, runtime := range []string{"containerd", "cri-o"} {
		t.Run(runtime, func(t *testing.T) {
			c := newContainerd(t)
			c.name = runtime
			plug(t, c.start().socket(), &fakeNode{}).serving(t)
			a, err := c.create(podOf("train"), containerOf("main", guarded()...))
			if err != nil {
				t.Fatal(err)
			}
			if resolved := runtime == "cri-o"; (len(a.CDIDevices) == 0) != resolved ||
				(len(a.GetLinux().GetDevices()) == 2) != resolved || (len(a.Mounts) == 1) != resolved ||
				(len(a.GetHooks().GetCreateContainer()) == 1) != resolved {
				t.Errorf("adjustment %v", a)
			}
			if a.Annotations[sharing.GrantAnnotation] != injection().Annotation {
				t.Errorf("annotations %v", a.Annotations)
			}
		})
	}
}

// Each edit of the CDI spec is in the adjustment as it is in the spec. Kerf's own variables stay.
func TestApplyEdits(t *testing.T) {
	a := &api.ContainerAdjustment{}
	setEnv(a, visibleEnv, visibleVoid)
	e, _ := editsOfGPU(sharing.Injection{})
	if err := applyEdits(a, containerOf("main"), e); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, v := range a.Env {
		env[v.Key] = v.Value
	}
	if env[visibleEnv] != visibleVoid || env["NVIDIA_CTK_LIBCUDA_DIR"] != "/usr/lib" || env["EMPTY"] != "" {
		t.Errorf("environment %v", a.Env)
	}
	gpu, control := a.Linux.Devices[0], a.Linux.Devices[1]
	if gpu.Path != "/dev/nvidia0" || gpu.Type != "c" || gpu.Major != 195 || gpu.Minor != 0 ||
		gpu.FileMode.GetValue() != 0o666 || gpu.Gid.GetValue() != 44 || gpu.Uid != nil {
		t.Errorf("device %v", gpu)
	}
	if control.Minor != 255 || control.FileMode != nil {
		t.Errorf("device %v", control)
	}
	m, h := a.Mounts[0], a.Hooks.CreateContainer[0]
	if m.Source != "/usr/lib/libcuda.so.1" || m.Destination != m.Source || m.Type != "bind" ||
		!slices.Equal(m.Options, []string{"ro", "bind"}) {
		t.Errorf("mount %v", m)
	}
	if h.Path != "/usr/bin/nvidia-cdi-hook" || h.Args[1] != "update-ldcache" || h.Timeout.GetValue() != 5 {
		t.Errorf("hook %v", h)
	}
}

// A container does not start without a part of its GPU.
func TestEditsThatNRILacks(t *testing.T) {
	for name, e := range map[string]specs.ContainerEdits{
		"group":          {AdditionalGIDs: []uint32{44}},
		"RDT class":      {IntelRdt: &specs.IntelRdt{ClosID: "x"}},
		"network device": {NetDevices: []*specs.LinuxNetDevice{{HostInterfaceName: "eth1", Name: "eth0"}}},
		"unknown hook":   {Hooks: []*specs.Hook{{HookName: "later", Path: "/x"}}},
	} {
		err := applyEdits(&api.ContainerAdjustment{}, containerOf("main"), e)
		if !errors.Is(err, sharing.ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", name, err)
		}
	}
}

// Hooks of each stage keep their stage.
func TestHookStages(t *testing.T) {
	stages := []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
	a := &api.ContainerAdjustment{}
	for _, stage := range stages {
		if err := addHook(a, &specs.Hook{HookName: stage, Path: "/" + stage}); err != nil {
			t.Fatal(err)
		}
	}
	h := a.Hooks
	for i, have := range [][]*api.Hook{h.Prestart, h.CreateRuntime, h.CreateContainer, h.StartContainer, h.Poststart,
		h.Poststop} {
		if len(have) != 1 || have[0].Path != "/"+stages[i] {
			t.Errorf("%s: %v", stages[i], have)
		}
	}
}
