// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestStaticGolden(t *testing.T) {
	files := mustStatic(t, small)
	var names []string
	for _, f := range files {
		golden(t, f.Name, f.Data)
		names = append(names, f.Name)
	}
	if want := []string{"kerf.dev-guard.json", "kerf.dev-ask.json", "kerf.dev-numa.json",
		"kerf.dev-near.json"}; !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
}

// TestStaticHooks holds every hook to what keeps a root process on the host apart from the container: see
// the rules in the package's comment. The golden files show it, and this says it.
func TestStaticHooks(t *testing.T) {
	guards, asks := 0, 0
	for _, f := range mustStatic(t, Maxima{MemoryGiB: 640, Percent: 800, GPUs: 8, NUMANodes: 2}) {
		s := read(t, f)
		if e := s.ContainerEdits; len(e.Env)+len(e.Hooks)+len(e.Mounts)+len(e.DeviceNodes) > 0 {
			t.Errorf("%s has edits for all of its devices", f.Name)
		}
		for _, d := range s.Devices {
			if len(d.ContainerEdits.DeviceNodes)+len(d.ContainerEdits.Mounts) > 0 {
				t.Errorf("%s=%s brings files", s.Kind, d.Name)
			}
			if s.Kind == sharing.CDINUMA || s.Kind == sharing.EarlierCDINUMA {
				continue
			}
			if n := len(d.ContainerEdits.Hooks); n != 1 {
				t.Fatalf("%s=%s has %d hooks, want 1", s.Kind, d.Name, n)
			}
			h := d.ContainerEdits.Hooks[0]
			if h.HookName != "createRuntime" || h.Path != testHook.Path || !path.IsAbs(h.Path) {
				t.Errorf("%s=%s: hook %s at %q", s.Kind, d.Name, h.HookName, h.Path)
			}
			if h.Timeout == nil || *h.Timeout != 120 {
				t.Errorf("%s=%s: timeout %v, want 120 s", s.Kind, d.Name, h.Timeout)
			}
			if len(h.Env) == 0 || slices.ContainsFunc(h.Env,
				func(v string) bool { return !strings.HasPrefix(v, "PATH=") }) {
				t.Errorf("%s=%s: environment %q, want PATH alone", s.Kind, d.Name, h.Env)
			}
			if name, ok := sharing.DeviceOfHook(h.Path, h.Args); !ok || name != s.Kind+"="+d.Name {
				t.Errorf("the hook of %s=%s is taken for that of %q where a runtime tells of hooks alone", s.Kind,
					d.Name, name)
			}
			want := []string{"kerf-hook", "activate", "--socket", testHook.Socket}
			if s.Kind == sharing.CDIRequest {
				want = append(want, "--request", d.Name)
				asks++
			} else {
				guards++
			}
			if !slices.Equal(h.Args, want) {
				t.Errorf("%s=%s: arguments %q, want %q", s.Kind, d.Name, h.Args, want)
			}
		}
	}
	if guards != 1 || asks != 640+800+8 {
		t.Errorf("%d guards and %d asks", guards, asks)
	}
}

// TestNamesResolve: what the device plugin answers is what a container runtime finds.
func TestNamesResolve(t *testing.T) {
	dir := t.TempDir()
	if _, err := Install(dir, mustStatic(t, small)); err != nil {
		t.Fatal(err)
	}
	cache, err := cdilib.NewCache(cdilib.WithSpecDirs(dir), cdilib.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	if errs := cache.GetErrors(); len(errs) > 0 {
		t.Fatal(errs)
	}
	names := []string{sharing.HookDevice, sharing.ResourceRequest{Resource: "gpu-memory-gib", Count: 3}.Device(),
		sharing.ResourceRequest{Resource: "gpu-percent", Count: 2}.Device(), sharing.NUMAAffinity{NUMA: 1,
			Count: 2}.Device()}
	admitted, err := sharing.AdmittedBy(names)
	if err != nil || !admitted.Guarded || len(admitted.Requests) != 2 || len(admitted.NUMA) != 1 {
		t.Fatalf("%+v (%v)", admitted, err)
	}
	spec := &oci.Spec{Process: &oci.Process{Env: []string{"KERF_NUMA=mine"}}}
	if _, err := cache.InjectDevices(spec, names...); err != nil {
		t.Fatal(err)
	}
	if n := len(spec.Hooks.CreateRuntime); n != 3 || spec.Hooks.CreateRuntime[1].Args[5] != "gpu-memory-gib:3" {
		t.Errorf("hooks %+v", spec.Hooks.CreateRuntime)
	}
	if !slices.Equal(spec.Process.Env, []string{"KERF_NUMA=1:2"}) {
		t.Errorf("environment %q", spec.Process.Env)
	}
	// What kubelet's checkpoint has of a pod that an earlier version admitted.
	former := []string{"kerf.dev/guard=armed", "kerf.dev/ask=gpu:2", "kerf.dev/near=numa0:2"}
	if _, err := cache.InjectDevices(&oci.Spec{}, former...); err != nil {
		t.Errorf("names of an earlier version: %v", err)
	}
	if _, err := cache.InjectDevices(spec, sharing.ResourceRequest{Resource: "gpu-memory-gib",
		Count: 4}.Device()); err == nil {
		t.Error("more than the node has resolves")
	}
}

func TestStaticWithoutHardware(t *testing.T) {
	files := mustStatic(t, Maxima{})
	if len(files) != 1 || files[0].Name != "kerf.dev-guard.json" {
		t.Errorf("%+v, want the guard alone", files)
	}
}

func TestStaticRefuses(t *testing.T) {
	good := testHook
	for name, tc := range map[string]struct {
		m Maxima
		h Hook
	}{
		"below 0":         {Maxima{MemoryGiB: -1}, good},
		"too much":        {Maxima{Percent: maxAmount + 1}, good},
		"too many nodes":  {Maxima{NUMANodes: sharing.MaxNUMA + 1}, good},
		"relative hook":   {small, Hook{"kerf-hook", good.Socket}},
		"hook with dots":  {small, Hook{"/opt/kerf/../kerf-hook", good.Socket}},
		"other program":   {small, Hook{"/bin/sh", good.Socket}},
		"no socket":       {small, Hook{good.Path, ""}},
		"relative socket": {small, Hook{good.Path, "hook.sock"}},
		"long socket":     {small, Hook{good.Path, "/" + strings.Repeat("s", 107)}},
	} {
		if files, err := Static(tc.m, tc.h); !errors.Is(err, sharing.ErrInvalid) || files != nil {
			t.Errorf("%s: %d files (%v), want a refusal", name, len(files), err)
		}
	}
}
