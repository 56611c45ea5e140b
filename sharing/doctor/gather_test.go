// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/nodeclient/fakenode"
	"github.com/kerf-gpu/kerf/sharing"
)

func touch(t *testing.T, mode os.FileMode, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
}

// Only GPUs and the control file count; nvidia-uvm, nvidia-caps and others do not.
func TestDeviceFiles(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidia", "null",
		"nvidia0x"} {
		touch(t, 0o600, filepath.Join(dir, n))
	}
	if diff := cmp.Diff([]string{"nvidia0", "nvidia10", "nvidiactl"}, deviceFiles(dir)); diff != "" {
		t.Error(diff)
	}
	if got := deviceFiles(filepath.Join(dir, "absent")); got != nil {
		t.Errorf("got %v", got)
	}
}

func TestInPath(t *testing.T) {
	dir := t.TempDir()
	touch(t, 0o644, filepath.Join(dir, "a", "tool"))
	touch(t, 0o755, filepath.Join(dir, "b", "tool"))
	path := filepath.Join(dir, "a") + ":" + filepath.Join(dir, "b")
	if got := inPath("tool", path); got != filepath.Join(dir, "b", "tool") {
		t.Errorf("got %q", got)
	}
	if got := inPath("absent", path); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestCDISpecs(t *testing.T) {
	dir := t.TempDir()
	touch(t, 0o644, filepath.Join(dir, "nvidia.yaml"), filepath.Join(dir, "other.yaml"),
		filepath.Join(dir, "nvidia.txt"))
	if diff := cmp.Diff([]string{filepath.Join(dir, "nvidia.yaml")},
		cdiSpecs(filepath.Join(dir, "absent"), dir)); diff != "" {
		t.Error(diff)
	}
}

func TestGatherAgent(t *testing.T) {
	dir := t.TempDir()
	if a := gatherAgent(t.Context(), dir); a.Answered || !a.Absent || a.Problem == "" {
		t.Errorf("without an agent: %+v", a)
	}
	s := (&fakenode.Server{}).Start(t, dir)
	s.Show(&nodeapi.GetNodeResponse{Ready: true, DriverVersion: "615.1", Gpus: []*nodeapi.GPU{
		{Levels: []string{"driver"}}, {Levels: []string{"exclusive", "driver", "of-the-future"}},
	}})
	want := Agent{Answered: true, Ready: true, DriverVersion: "615.1", Levels: []sharing.Level{sharing.LevelExclusive,
		sharing.LevelDriver}}
	if diff := cmp.Diff(want, gatherAgent(t.Context(), dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.Kill()
	if a := gatherAgent(t.Context(), dir); a.Answered || a.Absent || a.Problem == "" {
		t.Errorf("after a kill: %+v", a)
	}
}

// Every machine can be looked at, whatever it lacks.
func TestGatherHere(t *testing.T) {
	f := Gather(t.Context(), Where{Dir: t.TempDir(), DeviceRoot: t.TempDir()})
	if f.Kernel == "" || f.Root != (os.Geteuid() == 0) || f.Driver.Devices != nil || !f.Agent.Absent {
		t.Errorf("got %+v", f)
	}
	if r := Examine(f); len(r.Checks) < 15 {
		t.Errorf("got %d checks", len(r.Checks))
	}
}

func TestGatherRuntime(t *testing.T) {
	dir := t.TempDir()
	absent := filepath.Join(dir, "absent")
	if r := gatherRuntime(t.Context(), []string{absent}, absent, absent); r.Socket != "" || r.Problem != "" {
		t.Errorf("absent: %+v", r)
	}
	left := filepath.Join(dir, "left")
	touch(t, 0o600, left)
	if r := gatherRuntime(t.Context(), []string{absent, left}, absent, absent); r.Socket != left || r.Problem == "" {
		t.Errorf("no one listens: %+v", r)
	}
}
