// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

var update = flag.Bool("update", false, "rewrite testdata; commit the difference only if you understand it")

func plain(t testing.TB) *specs.Spec {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "plain.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s specs.Spec
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

func encode(t testing.TB, s *specs.Spec) string {
	t.Helper()
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data) + "\n"
}

// hardware is a grant on a GPU with device nodes, simulated one on a GPU that is a socket.
func hardware() Grant {
	mode, timeout := os.FileMode(0o666), 60
	return Grant{
		ID: "k-7f3a",
		Requests: []sharing.ResourceRequest{{Resource: "gpu-percent", Count: 25}, {Resource: "gpu-memory-gib",
			Count: 10}},
		HookPath:   "/opt/kerf/v0.2.0/kerf-hook",
		Socket:     "/run/kerf/hook.sock",
		Env:        map[string]string{"KERF_GRANT": "k-7f3a", "KERF_MEMORY": "10GiB"},
		Annotation: `{"grant":"k-7f3a"}`,
		Edits: cdispecs.ContainerEdits{
			Env: []string{"NVIDIA_VISIBLE_DEVICES=void", "KERF_MEMORY=other"},
			DeviceNodes: []*cdispecs.DeviceNode{
				{Path: "/dev/nvidia0", Type: "c", Major: 195, Minor: 0, FileMode: &mode, Permissions: "rw"},
				{Path: "/dev/nvidiactl", Type: "c", Major: 195, Minor: 255, FileMode: &mode, Permissions: "rw"},
			},
			Mounts: []*cdispecs.Mount{{HostPath: "/usr/lib/x86_64-linux-gnu/libcuda.so.615.10",
				ContainerPath: "/usr/lib/x86_64-linux-gnu/libcuda.so.1", Options: []string{"ro", "nosuid", "nodev",
					"bind"}}},
			Hooks: []*cdispecs.Hook{{HookName: "createContainer", Path: "/usr/bin/nvidia-cdi-hook",
				Args: []string{"nvidia-cdi-hook", "update-ldcache"}, Env: []string{"NVIDIA_CTK_DEBUG=false"},
				Timeout: &timeout}},
			AdditionalGIDs: []uint32{0, 44, 44},
		},
	}
}

func simulated() Grant {
	g := hardware()
	g.Requests, g.Env, g.Annotation = nil, nil, ""
	g.Edits = cdispecs.ContainerEdits{Mounts: []*cdispecs.Mount{{HostPath: "/run/gpusim/dev/nvidia0",
		ContainerPath: "/dev/nvidia0", Options: []string{"rw", "bind"}}}}
	return g
}

func TestPatchMounts(t *testing.T) {
	g := simulated()
	g.Mounts = []sharing.Mount{{Source: "/r", Target: "/usr/local/lib/kerf", ReadOnly: true},
		{Source: "/r/usage", Target: "/usr/local/lib/kerf/usage"}}
	s := plain(t)
	if err := Patch(s, g); err != nil {
		t.Fatal(err)
	}
	want := []specs.Mount{
		{Source: "/r", Destination: "/usr/local/lib/kerf", Type: "bind", Options: []string{"bind", "nosuid", "nodev",
			"ro"}},
		{Source: "/r/usage", Destination: "/usr/local/lib/kerf/usage", Type: "bind",
			Options: []string{"bind", "nosuid", "nodev", "rw"}},
	}
	if d := cmp.Diff(want, s.Mounts[len(s.Mounts)-2:]); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, at := range []string{"/usr/local/lib/kerf/limits", "/usr/local/lib/kerf/"} {
		s := plain(t)
		s.Mounts = append(s.Mounts, specs.Mount{Destination: at})
		before := encode(t, s)
		if err := Patch(s, g); !errors.Is(err, sharing.ErrInvalid) || encode(t, s) != before {
			t.Errorf("a mount at %s: %v", at, err)
		}
	}
	g.Mounts[1].Target = "usage"
	if err := Patch(plain(t), g); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("a relative path: %v", err)
	}
}

// TestPatchRemovesLimitEnv checks that no variable stays by which NVIDIA's limit hook replaces the cap. The variable
// may be there several times, or come from the edits of the GPU.
func TestPatchRemovesLimitEnv(t *testing.T) {
	s, g := plain(t), hardware()
	s.Process.Env = append(s.Process.Env, "NVIDIA_GPU_MEMORY_LIMIT=1", "KEPT=1", "NVIDIA_GPU_MEMORY_REQUEST=2",
		"NVIDIA_GPU_MEMORY_LIMIT=3")
	g.Edits.Env = append(g.Edits.Env, "NVIDIA_GPU_MEMORY_LIMIT=4")
	if err := Patch(s, g); err != nil {
		t.Fatal(err)
	}
	for _, v := range s.Process.Env {
		if strings.HasPrefix(v, "NVIDIA_GPU_MEMORY_") {
			t.Errorf("the program has %s", v)
		}
	}
	if !slices.Contains(s.Process.Env, "KEPT=1") {
		t.Error("another variable is gone")
	}
}

func TestPatchGolden(t *testing.T) {
	for name, g := range map[string]Grant{"hardware.json": hardware(), "simulated.json": simulated()} {
		s := plain(t)
		if err := Patch(s, g); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", "patched-"+name)
		got := encode(t, s)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
		// What the golden file shows, once more in words.
		ours := slices.DeleteFunc(slices.Clone(s.Hooks.CreateRuntime),
			func(h specs.Hook) bool { return h.Path != g.HookPath })
		if len(ours) != 1+len(g.Requests) {
			t.Errorf("%s: %d hooks of ours, want %d", name, len(ours), 1+len(g.Requests))
		}
		for _, h := range ours {
			if h.Timeout == nil || *h.Timeout != 120 || len(h.Env) != 1 ||
				!strings.HasPrefix(h.Env[0], "PATH=") || !slices.Contains(h.Args, "k-7f3a") {
				t.Errorf("%s: hook %+v", name, h)
			}
		}
		visible := slices.DeleteFunc(slices.Clone(s.Process.Env),
			func(v string) bool { return !strings.HasPrefix(v, "NVIDIA_VISIBLE_DEVICES=") })
		if !slices.Equal(visible, []string{"NVIDIA_VISIBLE_DEVICES=void"}) {
			t.Errorf("%s: environment %q", name, visible)
		}
		for _, r := range s.Linux.Resources.Devices {
			if r.Allow && r.Major != nil && *r.Major == 195 && r.Access != "rw" {
				t.Errorf("%s: rule %+v, want rw", name, r)
			}
		}
	}
}

func TestPatchTwice(t *testing.T) {
	s := plain(t)
	if err := Patch(s, hardware()); err != nil {
		t.Fatal(err)
	}
	once := encode(t, s)
	if err := Patch(s, hardware()); !errors.Is(err, sharing.ErrConflict) {
		t.Errorf("a second time: %v, want %v", err, sharing.ErrConflict)
	}
	if diff := cmp.Diff(once, encode(t, s)); diff != "" {
		t.Errorf("the refusal changed the spec: %s", diff)
	}
}

func number(n int64) *int64 { return &n }

func TestPatchRefusesSpecs(t *testing.T) {
	allow := func(r ...specs.LinuxDeviceCgroup) func(*specs.Spec) {
		return func(s *specs.Spec) { s.Linux.Resources.Devices = append(s.Linux.Resources.Devices, r...) }
	}
	tests := map[string]struct {
		change func(*specs.Spec)
		want   error
	}{
		"no process": {func(s *specs.Spec) { s.Process = nil }, sharing.ErrInvalid},
		"no program": {func(s *specs.Spec) { s.Process.Args = nil }, sharing.ErrInvalid},
		"no Linux":   {func(s *specs.Spec) { s.Linux = nil }, sharing.ErrInvalid},
		"hook of ours": {func(s *specs.Spec) {
			s.Hooks.Poststart = []specs.Hook{{Path: "/opt/kerf/v0.1.0/kerf-hook"}}
		}, sharing.ErrConflict},
		"hook of ours, renamed": {func(s *specs.Spec) { s.Hooks.CreateRuntime[0].Args[0] = "kerf-hook" },
			sharing.ErrConflict},
		"a note": {func(s *specs.Spec) { s.Annotations[sharing.GrantAnnotation] = "" }, sharing.ErrConflict},
		"another's cgroup": {func(s *specs.Spec) { s.Linux.Namespaces[2].Path = "/proc/7/ns/cgroup" },
			sharing.ErrInvalid},
		"root cgroup":      {func(s *specs.Spec) { s.Linux.CgroupsPath = "/" }, sharing.ErrInvalid},
		"cgroup with dots": {func(s *specs.Spec) { s.Linux.CgroupsPath = "/a/../../b" }, sharing.ErrInvalid},
		"a GPU": {func(s *specs.Spec) {
			s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/nvidia1", Type: "c", Major: 195, Minor: 1}}
		}, sharing.ErrInvalid},
		"a GPU by another name": {func(s *specs.Spec) {
			s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/x", Type: "c", Major: 195, Minor: 1}}
		}, sharing.ErrInvalid},
		"a GPU as mount": {func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/dev/nvidia1", Source: "/run/x"})
		}, sharing.ErrInvalid},
		"a GPU as mount, elsewhere": {func(s *specs.Spec) { s.Mounts[2].Source = "/dev/nvidia1" },
			sharing.ErrInvalid},
		"the host's devices": {func(s *specs.Spec) { s.Mounts[2].Source = "/dev/" }, sharing.ErrInvalid},
		"the whole host":     {func(s *specs.Spec) { s.Mounts[2].Source = "/" }, sharing.ErrInvalid},
		"every device":       {allow(specs.LinuxDeviceCgroup{Allow: true, Access: "rwm"}), sharing.ErrInvalid},
		"every device, type a": {allow(specs.LinuxDeviceCgroup{Allow: true, Type: "a", Major: number(-1),
			Minor: number(-1)}), sharing.ErrInvalid},
		"every character device": {allow(specs.LinuxDeviceCgroup{Allow: true, Type: "c", Access: "r"}),
			sharing.ErrInvalid},
		"every GPU": {allow(specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: number(195),
			Access: "rw"}), sharing.ErrInvalid},
		"one GPU": {allow(specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: number(195),
			Minor: number(1), Access: "rw"}), sharing.ErrInvalid},
		"every device but some": {allow(specs.LinuxDeviceCgroup{Allow: true},
			specs.LinuxDeviceCgroup{Type: "c", Major: number(195), Minor: number(1), Access: "rwm"}),
			sharing.ErrInvalid},
		"denied again": {allow(specs.LinuxDeviceCgroup{Allow: true},
			specs.LinuxDeviceCgroup{Access: "rwm"}), nil},
		"disks, other devices, mknod": {allow(specs.LinuxDeviceCgroup{Allow: true, Type: "b"},
			specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: number(10), Access: "rwm"},
			specs.LinuxDeviceCgroup{Allow: true, Access: "m"}), nil},
		"no hooks, no annotations": {func(s *specs.Spec) { s.Hooks, s.Annotations, s.Linux.Resources = nil, nil, nil },
			nil},
		"systemd's cgroup": {func(s *specs.Spec) { s.Linux.CgroupsPath = "machine.slice:libpod:c1" }, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := plain(t)
			tc.change(s)
			before := encode(t, s)
			err := Patch(s, hardware())
			if tc.want == nil {
				if err != nil || before == encode(t, s) {
					t.Errorf("error %v, want it patched", err)
				}
				return
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if diff := cmp.Diff(before, encode(t, s)); diff != "" {
				t.Errorf("the refusal changed the spec: %s", diff)
			}
		})
	}
	if err := Patch(nil, hardware()); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("no spec: %v", err)
	}
}

func TestPatchRefusesGrants(t *testing.T) {
	zero := 0
	node := func(change func(*cdispecs.DeviceNode)) func(*Grant) {
		return func(g *Grant) { change(g.Edits.DeviceNodes[0]) }
	}
	hook := func(change func(*cdispecs.Hook)) func(*Grant) {
		return func(g *Grant) { change(g.Edits.Hooks[0]) }
	}
	tests := map[string]struct {
		change func(*Grant)
		want   error
	}{
		"no id":           {func(g *Grant) { g.ID = "" }, sharing.ErrInvalid},
		"odd id":          {func(g *Grant) { g.ID = "--wait=1s" }, sharing.ErrInvalid},
		"relative hook":   {func(g *Grant) { g.HookPath = "kerf-hook" }, sharing.ErrInvalid},
		"hook with dots":  {func(g *Grant) { g.HookPath = "/opt/../kerf-hook" }, sharing.ErrInvalid},
		"other program":   {func(g *Grant) { g.HookPath = "/bin/sh" }, sharing.ErrInvalid},
		"relative socket": {func(g *Grant) { g.Socket = "hook.sock" }, sharing.ErrInvalid},
		"ask of nothing":  {func(g *Grant) { g.Requests[0].Count = 0 }, sharing.ErrInvalid},
		"ask of another":  {func(g *Grant) { g.Requests[0].Resource = "cpu" }, sharing.ErrInvalid},
		"two amounts": {func(g *Grant) { g.Requests[1].Resource = g.Requests[0].Resource },
			sharing.ErrInvalid},
		"variable without name": {func(g *Grant) { g.Env[""] = "x" }, sharing.ErrInvalid},
		"variable with =":       {func(g *Grant) { g.Env["A=B"] = "x" }, sharing.ErrInvalid},
		"variable with NUL":     {func(g *Grant) { g.Env["A"] = "x\x00B=c" }, sharing.ErrInvalid},
		"edit no variable":      {func(g *Grant) { g.Edits.Env = []string{"A"} }, sharing.ErrInvalid},
		"mknod":                 {node(func(d *cdispecs.DeviceNode) { d.Permissions = "rwm" }), sharing.ErrInvalid},
		"permissions not said":  {node(func(d *cdispecs.DeviceNode) { d.Permissions = "" }), sharing.ErrInvalid},
		"type not said":         {node(func(d *cdispecs.DeviceNode) { d.Type = "" }), sharing.ErrInvalid},
		"number not said":       {node(func(d *cdispecs.DeviceNode) { d.Major = 0 }), sharing.ErrInvalid},
		"relative node":         {node(func(d *cdispecs.DeviceNode) { d.Path = "nvidia0" }), sharing.ErrInvalid},
		"relative mount":        {func(g *Grant) { g.Edits.Mounts[0].ContainerPath = "lib" }, sharing.ErrInvalid},
		"hook of no stage":      {hook(func(h *cdispecs.Hook) { h.HookName = "later" }), sharing.ErrInvalid},
		"hook without env":      {hook(func(h *cdispecs.Hook) { h.Env = nil }), sharing.ErrInvalid},
		"hook without timeout":  {hook(func(h *cdispecs.Hook) { h.Timeout = nil }), sharing.ErrInvalid},
		"hook with timeout 0":   {hook(func(h *cdispecs.Hook) { h.Timeout = &zero }), sharing.ErrInvalid},
		"empty node": {func(g *Grant) { g.Edits.DeviceNodes = append(g.Edits.DeviceNodes, nil) },
			sharing.ErrInvalid},
		"empty mount": {func(g *Grant) { g.Edits.Mounts = append(g.Edits.Mounts, nil) }, sharing.ErrInvalid},
		"empty hook":  {func(g *Grant) { g.Edits.Hooks = append(g.Edits.Hooks, nil) }, sharing.ErrInvalid},
		"network device": {func(g *Grant) {
			g.Edits.NetDevices = []*cdispecs.LinuxNetDevice{{HostInterfaceName: "ib0", Name: "ib0"}}
		}, sharing.ErrUnsupported},
		"cache class": {func(g *Grant) { g.Edits.IntelRdt = &cdispecs.IntelRdt{ClosID: "x"} }, sharing.ErrUnsupported},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s, g := plain(t), hardware()
			before := encode(t, s)
			tc.change(&g)
			if err := Patch(s, g); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if diff := cmp.Diff(before, encode(t, s)); diff != "" {
				t.Errorf("the refusal changed the spec: %s", diff)
			}
		})
	}
}

func FuzzPatch(f *testing.F) {
	f.Add([]byte(encode(f, plain(f))))
	f.Add([]byte(`{"process":{"args":["a"]},"linux":{"resources":{"devices":[{"allow":true,"type":"c","major":-1}]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s specs.Spec
		if json.Unmarshal(data, &s) != nil {
			return
		}
		before := encode(t, &s)
		if err := Patch(&s, hardware()); err != nil {
			if before != encode(t, &s) {
				t.Errorf("the refusal %v changed the spec", err)
			}
			return
		}
		if n := len(s.Hooks.CreateRuntime); n < 3 || !isOurs(s.Hooks.CreateRuntime[n-1]) ||
			!isOurs(s.Hooks.CreateRuntime[n-3]) {
			t.Errorf("hooks %+v", s.Hooks.CreateRuntime)
		}
		if Patch(&s, hardware()) == nil {
			t.Error("it was patched twice")
		}
	})
}
