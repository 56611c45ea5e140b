// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

// checkEdits refuses what apply could make only by looking at the machine, and what would give more than the
// grant: a container runtime takes missing permissions for all of them, and a missing timeout for none.
func checkEdits(e cdispecs.ContainerEdits) error {
	if e.IntelRdt != nil || len(e.NetDevices) > 0 {
		return fmt.Errorf("edits of a GPU with network devices or cache classes: %w", sharing.ErrUnsupported)
	}
	if slices.Contains(e.DeviceNodes, nil) || slices.Contains(e.Mounts, nil) || slices.Contains(e.Hooks, nil) {
		return sharing.Invalid("edits of the GPU", "", "", "have an empty entry")
	}
	for _, v := range e.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" || strings.ContainsRune(v, 0) {
			return sharing.Invalid("environment of the GPU's edits", v, "", "is no variable")
		}
	}
	for _, d := range e.DeviceNodes {
		known := slices.Contains([]string{"b", "c", "u", "p"}, d.Type) && (d.Major > 0 || d.Type == "p")
		permitted := d.Permissions == "none" || d.Permissions != "" && strings.Trim(d.Permissions, "rw") == ""
		if !path.IsAbs(d.Path) || !known || !permitted {
			return sharing.Invalid("device node of the GPU's edits", d.Path, "", "is not whole: type %q, numbers %d:%d, permissions %q (of r and w)", d.Type, d.Major, d.Minor, d.Permissions)
		}
	}
	for _, m := range e.Mounts {
		if !path.IsAbs(m.HostPath) || !path.IsAbs(m.ContainerPath) {
			return sharing.Invalid("mount of the GPU's edits", m.ContainerPath, "", "is not of two absolute paths")
		}
	}
	for _, h := range e.Hooks {
		if _, ok := stages(&specs.Hooks{})[h.HookName]; !ok || !path.IsAbs(h.Path) || len(h.Env) == 0 || h.Timeout == nil || *h.Timeout <= 0 {
			return sharing.Invalid("hook of the GPU's edits", h.Path, "", "is not whole: stage %q, environment %q, timeout", h.HookName, h.Env)
		}
	}
	return nil
}

// apply makes checked edits, as a container runtime does for a CDI device.
func apply(spec *specs.Spec, e cdispecs.ContainerEdits) {
	for _, v := range e.Env {
		name, value, _ := strings.Cut(v, "=")
		setEnv(spec, name, value)
	}
	for _, d := range e.DeviceNodes {
		addNode(spec, d)
	}
	for _, m := range e.Mounts {
		spec.Mounts = slices.DeleteFunc(slices.Clone(spec.Mounts), func(have specs.Mount) bool {
			return path.Clean(have.Destination) == path.Clean(m.ContainerPath)
		})
		spec.Mounts = append(spec.Mounts, specs.Mount{Source: m.HostPath, Destination: m.ContainerPath, Type: m.Type, Options: slices.Clone(m.Options)})
	}
	for _, h := range e.Hooks {
		if spec.Hooks == nil {
			spec.Hooks = &specs.Hooks{}
		}
		timeout := *h.Timeout
		hook := specs.Hook{Path: h.Path, Args: slices.Clone(h.Args), Env: slices.Clone(h.Env), Timeout: &timeout}
		stage := stages(spec.Hooks)[h.HookName]
		*stage = append(slices.Clip(*stage), hook)
	}
	user := &spec.Process.User
	for _, gid := range e.AdditionalGIDs {
		if gid != 0 && !slices.Contains(user.AdditionalGids, gid) {
			user.AdditionalGids = append(slices.Clip(user.AdditionalGids), gid)
		}
	}
}

// addNode adds a device node, and the right to use it. A node without an owner is the program's user's.
func addNode(spec *specs.Spec, d *cdispecs.DeviceNode) {
	node := specs.LinuxDevice{Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor, FileMode: d.FileMode, UID: d.UID, GID: d.GID}
	if uid := spec.Process.User.UID; node.UID == nil && uid > 0 {
		node.UID = &uid
	}
	if gid := spec.Process.User.GID; node.GID == nil && gid > 0 {
		node.GID = &gid
	}
	linux := spec.Linux
	linux.Devices = slices.DeleteFunc(slices.Clone(linux.Devices), func(have specs.LinuxDevice) bool { return path.Clean(have.Path) == path.Clean(d.Path) })
	linux.Devices = append(linux.Devices, node)
	if d.Permissions == "none" || d.Type == "p" {
		return
	}
	if linux.Resources == nil {
		linux.Resources = &specs.LinuxResources{}
	}
	major, minor := d.Major, d.Minor
	kind := d.Type
	if kind == "u" {
		kind = "c" // the rules know no unbuffered devices
	}
	linux.Resources.Devices = append(slices.Clip(linux.Resources.Devices), specs.LinuxDeviceCgroup{Allow: true, Type: kind, Major: &major, Minor: &minor, Access: d.Permissions})
}
