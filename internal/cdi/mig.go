// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

// Instance is a MIG instance that containers are to get.
type Instance struct {
	// UUID is the MIG device's, and names the CDI device.
	UUID string
	// GPU is the one that it is of.
	GPU sharing.GPU
	// Caps are the nodes that every process needs to use it.
	Caps []Cap
}

// Cap is a capability node of the driver.
type Cap struct {
	// Path is where programs look for it, and Host where it is on the host.
	Path, Host string
	// Major and Minor are its numbers, with which a container's node is made whether the host has one or not. Major is
	// 0 where it is no device: then the file itself is shown.
	Major, Minor int
}

// migFile is the spec of the MIG instances.
func (k *Manager) migFile() string { return filepath.Join(k.own, fileName(sharing.CDIMIG)) }

// Instances writes the spec of kerf.dev/mig with a device for each of the instances, and no other; without instances,
// there is no spec. Common edits come from the specs of nvidia.com/gpu. It reports whether it wrote something. Errors
// are those of Source and Install, and sharing.ErrInvalid for a spec that adds another GPU to every device.
func (k *Manager) Instances(instances []Instance) (written bool, err error) {
	defer func() { k.mig = looks(k.migFile()) }()
	if len(instances) == 0 {
		err := os.Remove(k.migFile())
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("remove cdi spec: %w (%w)", err, sharing.ErrUnavailable)
		}
		return true, nil
	}
	from, err := k.source()
	if err != nil {
		return false, err
	}
	f, err := deriveInstances(from, instances)
	if err != nil {
		return false, err
	}
	names, err := Install(k.own, []File{f})
	return len(names) > 0, err
}

// deriveInstances makes the spec. It is pure.
func deriveInstances(from []SourceSpec, instances []Instance) (File, error) {
	// The toolkit leaves a GPU in MIG mode out of its spec, so that which file has it tells nothing.
	common := from[0].Common
	if given := minors(common); len(given) > 0 {
		return File{}, fmt.Errorf("cdi spec %q gives /dev/nvidia%d with every device: %s: %w", from[0].Path, given[0],
			generate, sharing.ErrInvalid)
	}
	spec := &specs.Spec{Kind: sharing.CDIMIG, ContainerEdits: tighten(common)}
	spec.ContainerEdits.Env = withVoid(spec.ContainerEdits.Env)
	for _, in := range instances {
		edits := ofGPU(from, in)
		edits.Env = append(withoutVisible(edits.Env), "CUDA_VISIBLE_DEVICES="+in.UUID)
		for _, c := range in.Caps {
			addCap(&edits, c)
		}
		spec.Devices = append(spec.Devices, specs.Device{Name: in.UUID, ContainerEdits: edits})
	}
	slices.SortFunc(spec.Devices, func(a, b specs.Device) int { return strings.Compare(a.Name, b.Name) })
	return newFile(spec)
}

// ofGPU are the edits that bring the GPU's own device file: the specs', or its name alone.
func ofGPU(from []SourceSpec, in Instance) specs.ContainerEdits {
	if _, d, why := find(from, in.GPU); why == "" {
		return tighten(d.ContainerEdits)
	}
	return specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{{Path: "/dev/nvidia" + strconv.Itoa(in.GPU.Minor),
		Permissions: "rw"}}}
}

func addCap(e *specs.ContainerEdits, c Cap) {
	if c.Major == 0 {
		e.Mounts = append(e.Mounts, &specs.Mount{HostPath: c.Host, ContainerPath: c.Path,
			Options: []string{"bind", "ro", "nosuid", "noexec", "nodev"}})
		return
	}
	mode := os.FileMode(0o444)
	e.DeviceNodes = append(e.DeviceNodes, &specs.DeviceNode{
		Path: path.Clean(c.Path), Type: "c", Major: int64(c.Major), Minor: int64(c.Minor), FileMode: &mode,
		Permissions: "rw",
	})
}
