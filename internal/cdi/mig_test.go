// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

const migUUID = "MIG-0f8a1b2c-0000-1111-2222-333344445555"

// An instance brings its GPU's own file, its own two capability nodes, and no others.
func TestInstances(t *testing.T) {
	for name, from := range map[string]string{"a real node": "nvidia-toolkit.yaml",
		"a simulated one": "simulated.json"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			data, err := os.ReadFile(filepath.Join("testdata", from))
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, dir, from, string(data))
			in := Instance{UUID: migUUID, GPU: node[0], Caps: []Cap{
				{Path: "/dev/nvidia-caps/nvidia-cap12", Host: "/sim/dev/nvidia-caps/nvidia-cap12"},
				{Path: "/dev/nvidia-caps/nvidia-cap13", Host: "/sim/dev/nvidia-caps/nvidia-cap13", Major: 236,
					Minor: 13},
			}}
			in.GPU.MIG = true
			manager := NewManager(dir, []string{dir}, testHook)
			written, err := manager.Instances([]Instance{in})
			if err != nil || !written {
				t.Fatalf("written %t: %v", written, err)
			}
			if written, err = manager.Instances([]Instance{in}); err != nil || written {
				t.Errorf("again: written %t: %v", written, err)
			}
			data, err = os.ReadFile(filepath.Join(dir, "kerf.dev-mig.json"))
			if err != nil {
				t.Fatal(err)
			}
			s, err := parse(data)
			if err != nil || len(s.Devices) != 1 || s.Devices[0].Name != migUUID {
				t.Fatalf("%+v: %v", s, err)
			}
			if !slices.Contains(s.ContainerEdits.Env, "NVIDIA_VISIBLE_DEVICES=void") {
				t.Errorf("environment %q", s.ContainerEdits.Env)
			}
			e := s.Devices[0].ContainerEdits
			if got := minors(e); !slices.Equal(got, []int{node[0].Minor}) {
				t.Errorf("it brings /dev/nvidia%v", got)
			}
			if !slices.Contains(e.Env, "CUDA_VISIBLE_DEVICES="+migUUID) {
				t.Errorf("environment %q", e.Env)
			}
			mounted := func(m *specs.Mount) bool {
				return m.ContainerPath == "/dev/nvidia-caps/nvidia-cap12" &&
					m.HostPath == "/sim/dev/nvidia-caps/nvidia-cap12" && slices.Contains(m.Options, "ro")
			}
			made := func(d *specs.DeviceNode) bool {
				return d.Path == "/dev/nvidia-caps/nvidia-cap13" && d.Type == "c" && d.Major == 236 && d.Minor == 13 &&
					d.HostPath == "" && d.Permissions == "rw"
			}
			if !slices.ContainsFunc(e.Mounts, mounted) || !slices.ContainsFunc(e.DeviceNodes, made) {
				t.Errorf("capabilities: %s", data)
			}
			if n := strings.Count(string(data), "nvidia-cap1"); n != 3 { // host and container of the one, and the other
				t.Errorf("%d names of capability nodes: %s", n, data)
			}
			whole, err := EditsForInstance(dir, migUUID)
			if from == "simulated.json" && (err != nil || !slices.ContainsFunc(whole.Mounts, mounted) ||
				!slices.ContainsFunc(whole.DeviceNodes, made)) {
				t.Errorf("edits for a spec: %+v, %v", whole, err)
			}
			if _, err := EditsForInstance(dir, "MIG-other"); !errors.Is(err, sharing.ErrNotFound) {
				t.Errorf("edits of no device: %v", err)
			}
			if err := Conflicts(dir, []string{dir}); err != nil {
				t.Errorf("our own spec: %v", err)
			}
			if written, err = manager.Instances(nil); err != nil || !written {
				t.Errorf("none: written %t: %v", written, err)
			}
			if written, err = manager.Instances(nil); err != nil || written {
				t.Errorf("none again: written %t: %v", written, err)
			}
		})
	}
}

// The toolkit's spec has no device for a GPU that was in MIG mode when it was made.
func TestInstanceOfAGPUWithoutADevice(t *testing.T) {
	from := source(t, "nvidia-toolkit.yaml")
	other := node[0]
	other.UUID, other.Index, other.Minor = "GPU-99999999-0000-0000-0000-000000000000", 17, 17
	f, err := deriveInstances(from, []Instance{{UUID: migUUID, GPU: other}})
	if err != nil {
		t.Fatal(err)
	}
	if got := minors(read(t, f).Devices[0].ContainerEdits); !slices.Equal(got, []int{17}) {
		t.Errorf("it brings /dev/nvidia%v", got)
	}
	from[0].Common.DeviceNodes = append(from[0].Common.DeviceNodes, &specs.DeviceNode{Path: "/dev/nvidia3"})
	if _, err := deriveInstances(from, []Instance{{UUID: migUUID, GPU: node[0]}}); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("another GPU with every device: %v", err)
	}
	if _, err := NewManager(t.TempDir(), []string{t.TempDir()},
		Hook{}).Instances([]Instance{{UUID: migUUID, GPU: node[0]}}); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("no spec of the toolkit: %v", err)
	}
}

// When instances come and go, nothing else changes and nothing else is read. A change by another program is still
// noticed.
func TestInstancesLeaveTheRestAlone(t *testing.T) {
	k, own, run := newKept(t)
	in := Instance{UUID: migUUID, GPU: node[0]}
	show := func(what string, list []Instance, want bool) {
		t.Helper()
		if written, err := k.Instances(list); err != nil || written != want {
			t.Fatalf("%s: written %t: %v", what, written, err)
		}
	}
	settle := func() {
		t.Helper()
		for range 3 {
			if _, err := k.Reconcile(small, node); err != nil {
				t.Fatal(err)
			}
		}
	}
	show("first", []Instance{in}, true)
	settle()
	good, from := k.good, k.from
	show("none", nil, true)
	show("one again", []Instance{in}, true)
	now, err := k.look(small, node)
	if err != nil || now != good || &from[0] != &k.from[0] {
		t.Errorf("after instances came and went the folders look otherwise (%v):\n%s\n%s", err, good, now)
	}
	data, err := os.ReadFile(filepath.Join(run, "nvidia.json"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, run, "nvidia.json", strings.Replace(string(data), "/run/gpusim/dev/nvidiactl",
		"/run/elsewhere/nvidiactl", 1))
	show("after another spec of NVIDIA's", []Instance{in}, true)
	if data, err = os.ReadFile(filepath.Join(own, "kerf.dev-mig.json")); err != nil ||
		!strings.Contains(string(data), "/run/elsewhere/nvidiactl") {
		t.Errorf("%v: %s", err, data)
	}
	settle()
	good = k.good
	writeFile(t, own, "kerf.dev-mig.json", "{}")
	if now, err := k.look(small, node); err != nil || now == good {
		t.Errorf("a file that is not ours is not seen: %v", err)
	}
	show("over it", []Instance{in}, true)
}
