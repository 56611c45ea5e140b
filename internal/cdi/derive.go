// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

// Derived is the spec of kerf.dev/gpu, and what it could not be made for.
type Derived struct {
	// File is the spec; its Name is empty when no GPU has a device.
	File File
	// GPUs are those that have a device, sorted.
	GPUs []sharing.GPUID
	// Left says for each other GPU why it has none, as a sentence with a remedy.
	Left map[sharing.GPUID]string
}

// Derive makes the spec of kerf.dev/gpu: one device for each of the GPUs, named by UUID, with the edits that
// nvidia.com/gpu has for it. It is pure: the same input gives the same bytes.
//
// A source device may be named by UUID or by index. It is taken only if it brings the device file of that
// GPU's minor number and of no other GPU: a spec that was made before the GPUs were numbered anew would give
// a container its neighbour's GPU. Every device node becomes "rw", or less where the source gives less;
// hooks keep their place and get an environment and a timeout where they have none; the nodes that give
// rights over MIG itself are left out; NVIDIA_VISIBLE_DEVICES is "void", so that no older runtime adds GPUs
// on its own. GPUs in MIG mode have no device.
//
// The error wraps sharing.ErrInvalid: edits that come with every device bring the file of one GPU, or the
// GPUs' devices come from several files.
func Derive(from []SourceSpec, gpus []sharing.GPU) (Derived, error) {
	out := Derived{Left: make(map[sharing.GPUID]string)}
	spec := &specs.Spec{Kind: sharing.CDIGPU}
	source := ""
	for _, g := range gpus {
		if g.MIG {
			out.Left[g.UUID] = "it is in MIG mode, and its instances alone have devices"
			continue
		}
		s, d, why := find(from, g)
		if why != "" {
			out.Left[g.UUID] = why
			continue
		}
		if source != "" && source != s.Path {
			return Derived{}, fmt.Errorf("cdi specs %q and %q both have GPUs of this node: remove the one that is out of date: %w", source, s.Path, sharing.ErrInvalid)
		}
		if source == "" {
			source = s.Path
			if given := minors(s.Common); len(given) > 0 {
				return Derived{}, fmt.Errorf("cdi spec %q gives /dev/nvidia%d with every device: %s: %w", s.Path, given[0], generate, sharing.ErrInvalid)
			}
			spec.ContainerEdits = tighten(s.Common)
			spec.ContainerEdits.Env = withVoid(spec.ContainerEdits.Env)
		}
		edits := tighten(d.ContainerEdits)
		edits.Env = withoutVisible(edits.Env)
		spec.Devices = append(spec.Devices, specs.Device{Name: string(g.UUID), ContainerEdits: edits})
		out.GPUs = append(out.GPUs, g.UUID)
	}
	if len(spec.Devices) == 0 {
		return out, nil
	}
	slices.Sort(out.GPUs)
	slices.SortFunc(spec.Devices, func(a, b specs.Device) int { return strings.Compare(a.Name, b.Name) })
	var err error
	out.File, err = newFile(spec)
	return out, err
}

// find is the source device of one GPU. A name that is a UUID goes before one that is a number.
func find(from []SourceSpec, g sharing.GPU) (SourceSpec, specs.Device, string) {
	index := strconv.Itoa(g.Index)
	why := fmt.Sprintf("the specs of nvidia.com/gpu have no device %q or %q: %s", g.UUID, index, generate)
	for _, named := range []func(string) bool{
		func(name string) bool { id, err := sharing.ParseGPUID("", name); return err == nil && id == g.UUID },
		func(name string) bool { return name == index || name == "gpu"+index },
	} {
		for _, s := range from {
			for _, d := range s.Devices {
				if !named(d.Name) {
					continue
				}
				if got := minors(d.ContainerEdits); len(got) == 1 && got[0] == g.Minor {
					return s, d, ""
				}
				why = fmt.Sprintf("device %q in %q does not bring /dev/nvidia%d and no other GPU, so the spec is not of now: %s", d.Name, s.Path, g.Minor, generate)
			}
		}
	}
	return SourceSpec{}, specs.Device{}, why
}

// minors are the N of all /dev/nvidiaN that edits bring into a container, as device nodes or as mounts,
// sorted; two N where a file has another name in the container.
func minors(e specs.ContainerEdits) []int {
	var out []int
	note := func(p string) {
		n, ok := strings.CutPrefix(path.Clean(p), "/dev/nvidia")
		minor, err := strconv.ParseUint(n, 10, 16)
		if ok && err == nil && !slices.Contains(out, int(minor)) {
			out = append(out, int(minor))
		}
	}
	for _, d := range e.DeviceNodes {
		note(d.Path)
		note(d.HostPath)
	}
	for _, m := range e.Mounts {
		note(m.ContainerPath)
		note(m.HostPath)
	}
	slices.Sort(out)
	return out
}
