// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/internal/cdi"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
)

// derives compares Kerf's spec with the one that NVIDIA's library nvcdi has made. A container gets the same files of
// the driver by both. It gets all hooks but the one that takes a cap from the container.
func (m *machine) derives(dir string) error {
	from, err := cdi.Source([]string{dir})
	if err != nil {
		return err
	}
	var gpus []sharing.GPU
	for _, g := range decode[[]control.GPU](m.t, m.gpusim("gpus", "-o", "json").out) {
		gpus = append(gpus, sharing.GPU{UUID: sharing.GPUID(g.UUID), Index: g.Index, Minor: g.Minor})
	}
	derived, err := cdi.Derive(from, gpus)
	if err != nil || len(derived.GPUs) != len(gpus) || len(from) != 1 {
		return fmt.Errorf("kerf derives GPUs %q of %d specs, left %v: %w", derived.GPUs, len(from), derived.Left, err)
	}
	got := decode[specs.Spec](m.t, string(derived.File.Data))
	err = sameEdits("all devices", from[0].Common, got.ContainerEdits)
	for _, d := range from[0].Devices {
		if i := slices.IndexFunc(got.Devices, func(o specs.Device) bool { return o.Name == d.Name }); i >= 0 {
			err = errors.Join(err, sameEdits(d.Name, d.ContainerEdits, got.Devices[i].ContainerEdits))
		} else if strings.HasPrefix(d.Name, "GPU-") {
			err = errors.Join(err, fmt.Errorf("kerf's spec lacks %s", d.Name))
		}
	}
	return err
}

// sameEdits compares device files, mounts and hooks.
func sameEdits(name string, from, got specs.ContainerEdits) error {
	const hookOfNVIDIA = "apply-cuda-memory-limits"
	var err error
	for _, kind := range []struct {
		name      string
		from, got []string
	}{
		{"device files", devicePaths(from), devicePaths(got)},
		{"mounts", mountPaths(from), mountPaths(got)},
		{"hooks", slices.DeleteFunc(hookArguments(from), func(a string) bool {
			return strings.Contains(a,
				hookOfNVIDIA)
		}),
			hookArguments(got)},
	} {
		if !slices.Equal(kind.from, kind.got) {
			err = errors.Join(err, fmt.Errorf("%s of %s: nvcdi has %q, kerf %q", kind.name, name, kind.from, kind.got))
		}
	}
	for _, d := range got.DeviceNodes {
		if d.Permissions != "rw" {
			err = errors.Join(err, fmt.Errorf("%s of %s has permissions %q", d.Path, name, d.Permissions))
		}
	}
	return err
}

func devicePaths(e specs.ContainerEdits) (out []string) {
	for _, d := range e.DeviceNodes {
		out = append(out, d.HostPath+":"+d.Path)
	}
	return out
}

func mountPaths(e specs.ContainerEdits) (out []string) {
	for _, m := range e.Mounts {
		out = append(out, fmt.Sprint(m.HostPath, ":", m.ContainerPath, m.Options))
	}
	return out
}

func hookArguments(e specs.ContainerEdits) (out []string) {
	for _, h := range e.Hooks {
		out = append(out, fmt.Sprint(h.HookName, h.Path, h.Args))
	}
	return out
}
