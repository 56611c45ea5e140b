// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestDeriveGolden(t *testing.T) {
	for in, tc := range map[string]struct {
		gpus []sharing.GPU
		out  string
	}{
		"nvidia-toolkit.yaml":            {node, "kerf.dev-gpu.nvidia-toolkit.json"},
		"simulated.json":                 {node, "kerf.dev-gpu.simulated.json"},
		"nvidia-toolkit-1.20.1.yaml":     {a30x2(), "kerf.dev-gpu.nvidia-toolkit-1.20.1.json"},
		"nvidia-toolkit-1.20.1-ctk.yaml": {a30x2(), "kerf.dev-gpu.nvidia-toolkit-1.20.1-ctk.json"},
	} {
		t.Run(in, func(t *testing.T) {
			got, err := Derive(source(t, in), tc.gpus)
			if err != nil || len(got.Left) > 0 {
				t.Fatalf("%v %v", err, got.Left)
			}
			if got.File.Name != "kerf.dev-gpu.json" || len(got.GPUs) != len(tc.gpus) {
				t.Errorf("file %q for %q", got.File.Name, got.GPUs)
			}
			golden(t, tc.out, got.File.Data)
			if bytes.Contains(got.File.Data, []byte("memory-limits")) {
				t.Error("the derived spec keeps the hook that sets limits from the container's environment")
			}
			s := read(t, got.File)
			checkTight(t, s.ContainerEdits)
			for _, d := range s.Devices {
				checkTight(t, d.ContainerEdits)
			}
			if !slices.Contains(s.ContainerEdits.Env, "NVIDIA_VISIBLE_DEVICES=void") {
				t.Errorf("environment %q does not keep older runtimes from adding GPUs", s.ContainerEdits.Env)
			}
		})
	}
}

// a30x2 are the GPUs of the simulated machine for which the toolkit made the 1.20.1 specs in testdata.
func a30x2() []sharing.GPU {
	return []sharing.GPU{
		{UUID: "GPU-06132ab4-8ca2-5bf7-9360-da1da8a47ffb", Index: 0, Minor: 0},
		{UUID: "GPU-3e005ea2-3ff7-5042-86f7-341a8f4e40e8", Index: 1, Minor: 1},
	}
}

// checkTight: no node may be made, and no hook runs with what the container runtime's own environment has.
func checkTight(t *testing.T, e specs.ContainerEdits) {
	t.Helper()
	for _, d := range e.DeviceNodes {
		if d.Permissions != "rw" || strings.HasPrefix(d.Path, "/dev/nvidia-caps") {
			t.Errorf("node %q has permissions %q, want rw", d.Path, d.Permissions)
		}
	}
	for _, h := range e.Hooks {
		if len(h.Env) == 0 || h.Timeout == nil || *h.Timeout <= 0 {
			t.Errorf("hook %q has environment %q and timeout %v", h.Args, h.Env, h.Timeout)
		}
	}
}

// TestDerivedInjects lets the container runtime's library read what was derived.
func TestDerivedInjects(t *testing.T) {
	got, err := Derive(source(t, "simulated.json"), node)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := Install(dir, []File{got.File}); err != nil {
		t.Fatal(err)
	}
	cache, _ := cdilib.NewCache(cdilib.WithSpecDirs(dir), cdilib.WithAutoRefresh(false))
	spec := &oci.Spec{Process: &oci.Process{Env: []string{"NVIDIA_VISIBLE_DEVICES=all"}}}
	if _, err := cache.InjectDevices(spec, sharing.CDIGPU+"="+string(gpuB)); err != nil {
		t.Fatal(err)
	}
	var at []string
	for _, m := range spec.Mounts {
		at = append(at, m.Destination)
	}
	slices.Sort(at)
	want := []string{"/dev/nvidia3", "/dev/nvidiactl", "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
		"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"}
	if !slices.Equal(at, want) || !slices.Equal(spec.Process.Env, []string{void}) {
		t.Errorf("mounts %q, environment %q", at, spec.Process.Env)
	}
}

func devices(names map[string][]int) []specs.Device {
	var out []specs.Device
	for name, minors := range names {
		d := specs.Device{Name: name}
		for _, n := range minors {
			d.ContainerEdits.DeviceNodes = append(d.ContainerEdits.DeviceNodes,
				&specs.DeviceNode{Path: "/dev/nvidia" + string(rune('0'+n))})
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b specs.Device) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func TestDeriveFindsTheRightGPU(t *testing.T) {
	tests := map[string]struct {
		names map[string][]int
		gpus  []sharing.GPU
		// node is the minor that gpuA must get, -1 for none; why is part of the reason then.
		node int
		why  string
	}{
		"uuid": {map[string][]int{string(gpuA): {2}}, []sharing.GPU{{UUID: gpuA, Index: 5, Minor: 2}}, 2,
			""},
		"upper case": {map[string][]int{strings.ToUpper(string(gpuA)[:3]) +
			strings.ToUpper(string(gpuA)[3:]): {2}}, []sharing.GPU{{UUID: gpuA, Minor: 2}}, 2, ""},
		"index": {map[string][]int{"1": {2}, "2": {1}}, []sharing.GPU{{UUID: gpuA, Index: 1, Minor: 2}}, 2,
			""},
		"type and index": {map[string][]int{"gpu1": {2}}, []sharing.GPU{{UUID: gpuA, Index: 1, Minor: 2}}, 2, ""},
		"uuid before index": {map[string][]int{"0": {4}, string(gpuA): {2}},
			[]sharing.GPU{{UUID: gpuA, Index: 0, Minor: 2}}, 2, ""},
		// The numbers changed after the spec was made: it would give the neighbor's GPU.
		"old uuid": {map[string][]int{string(gpuA): {0}, string(gpuB): {1}},
			[]sharing.GPU{{UUID: gpuA, Index: 1, Minor: 1}}, -1, "not of now"},
		"old index": {map[string][]int{"0": {0}}, []sharing.GPU{{UUID: gpuA, Index: 0, Minor: 1}}, -1,
			"nvidia-ctk"},
		"old uuid, good 0": {map[string][]int{"0": {1}, string(gpuA): {0}},
			[]sharing.GPU{{UUID: gpuA, Index: 0, Minor: 1}}, 1, ""},
		"two GPUs in one": {map[string][]int{string(gpuA): {0, 1}}, []sharing.GPU{{UUID: gpuA, Minor: 1}}, -1,
			"no other GPU"},
		"no file": {map[string][]int{string(gpuA): nil}, []sharing.GPU{{UUID: gpuA, Minor: 1}}, -1,
			"/dev/nvidia1"},
		"only all": {map[string][]int{"all": {1}}, []sharing.GPU{{UUID: gpuA, Minor: 1}}, -1, "nvidia-ctk"},
		"only a MIG device": {map[string][]int{"0:0": {1}, "MIG-x": {1}}, []sharing.GPU{{UUID: gpuA, Minor: 1}}, -1,
			"nvidia-ctk"},
		"in MIG mode": {map[string][]int{string(gpuA): {1}}, []sharing.GPU{{UUID: gpuA, Minor: 1, MIG: true}},
			-1, "MIG mode"},
		"index of no number": {map[string][]int{"01": {1}, "+1": {1}, "1 ": {1}},
			[]sharing.GPU{{UUID: gpuA, Index: 1, Minor: 1}}, -1, "nvidia-ctk"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Derive([]SourceSpec{{Path: "/etc/cdi/nvidia.yaml", Devices: devices(tc.names)}}, tc.gpus)
			if err != nil {
				t.Fatal(err)
			}
			if tc.node < 0 {
				if len(got.GPUs) > 0 || got.File.Name != "" || !strings.Contains(got.Left[gpuA], tc.why) {
					t.Errorf("%q has a device, left %q, want none because of %q", got.GPUs, got.Left, tc.why)
				}
				return
			}
			s := read(t, got.File)
			if len(s.Devices) != 1 || s.Devices[0].Name != string(gpuA) || len(got.Left) > 0 {
				t.Fatalf("devices %+v, left %q", s.Devices, got.Left)
			}
			if have := minors(s.Devices[0].ContainerEdits); !slices.Equal(have, []int{tc.node}) {
				t.Errorf("it brings /dev/nvidia%v, want %d", have, tc.node)
			}
		})
	}
}

func TestDeriveRefusesCommonGPU(t *testing.T) {
	for name, common := range map[string]specs.ContainerEdits{
		"node":         {DeviceNodes: []*specs.DeviceNode{{Path: "/dev/nvidia1"}}},
		"renamed node": {DeviceNodes: []*specs.DeviceNode{{Path: "/dev/gpu", HostPath: "/dev/nvidia1"}}},
		"odd path":     {DeviceNodes: []*specs.DeviceNode{{Path: "/dev/./nvidia1"}}},
		"mount":        {Mounts: []*specs.Mount{{HostPath: "/run/x", ContainerPath: "/dev/nvidia1"}}},
	} {
		from := []SourceSpec{{Path: "/etc/cdi/hand.yaml", Devices: devices(map[string][]int{string(gpuA): {0}}),
			Common: common}}
		if got, err := Derive(from, []sharing.GPU{{UUID: gpuA}}); !errors.Is(err, sharing.ErrInvalid) ||
			got.File.Name != "" || !strings.Contains(err.Error(), "hand.yaml") {
			t.Errorf("%s: %v, want a refusal that names the file", name, err)
		}
	}
}

func TestDeriveRefusesTwoFiles(t *testing.T) {
	from := []SourceSpec{
		{Path: "/etc/cdi/a.yaml", Devices: devices(map[string][]int{string(gpuA): {0}})},
		{Path: "/etc/cdi/b.yaml", Devices: devices(map[string][]int{string(gpuB): {1}})},
	}
	_, err := Derive(from, []sharing.GPU{{UUID: gpuA}, {UUID: gpuB, Minor: 1}})
	if !errors.Is(err, sharing.ErrInvalid) || !strings.Contains(err.Error(), "a.yaml") ||
		!strings.Contains(err.Error(), "b.yaml") {
		t.Errorf("%v, want both files", err)
	}
}

func TestDeriveLeavesItsInputAlone(t *testing.T) {
	from := source(t, "nvidia-toolkit.yaml")
	first, err := Derive(from, node)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(from[0].Devices)
	second, err := Derive(from, []sharing.GPU{node[1], node[0]})
	if err != nil || !bytes.Equal(first.File.Data, second.File.Data) {
		t.Errorf("another order of the same gives other bytes (%v)", err)
	}
}

func TestPermissions(t *testing.T) {
	for in, want := range map[string]string{"": "rw", "rwm": "rw", "rw": "rw", "r": "r", "mr": "r", "m": "none",
		"none": "none", "wm": "w"} {
		if got := permissions(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func FuzzDerive(f *testing.F) {
	for _, name := range []string{"nvidia-toolkit.yaml", "simulated.json"} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parse(data)
		if err != nil || validate(s) != nil {
			return
		}
		got, err := Derive([]SourceSpec{{Path: "/etc/cdi/x", Devices: s.Devices, Common: s.ContainerEdits}}, node)
		if err != nil || got.File.Name == "" {
			return
		}
		for _, g := range node {
			if got.Left[g.UUID] != "" {
				continue
			}
			edits, err := editsFor(got.File.Data, sharing.CDIGPU, []string{string(g.UUID)})
			if err != nil {
				t.Fatal(err)
			}
			if have := minors(edits); !slices.Equal(have, []int{g.Minor}) {
				t.Errorf("%q brings /dev/nvidia%v", g.UUID, have)
			}
			for _, d := range edits.DeviceNodes {
				if d.Permissions == "" || d.Permissions != "none" && strings.Contains(d.Permissions, "m") {
					t.Errorf("node %+v", *d)
				}
			}
			for _, h := range edits.Hooks {
				if len(h.Env) == 0 || h.Timeout == nil || *h.Timeout <= 0 {
					t.Errorf("hook %+v", *h)
				}
			}
		}
	})
}
