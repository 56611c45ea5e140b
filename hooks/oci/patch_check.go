// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// nvidiaMajor is the device number of all /dev/nvidiaN and of /dev/nvidiactl.
	nvidiaMajor  = 195
	nvidiaPrefix = "/dev/nvidia"
	withoutGPUs  = "make the container without GPU options and without --privileged; Kerf adds the GPUs"
)

// checkSpec refuses what cannot be held to a grant.
func checkSpec(spec *specs.Spec) error {
	switch {
	case spec == nil || spec.Process == nil || len(spec.Process.Args) == 0:
		return sharing.Invalid("process", "", "give the spec of a container", "has no program")
	case spec.Linux == nil:
		return sharing.Invalid("linux", "", "give the spec of a Linux container", "is missing")
	}
	for stage, hooks := range stages(spec.Hooks) {
		if slices.ContainsFunc(*hooks, isOurs) {
			return fmt.Errorf("%s hooks have kerf-hook already; make the spec again: %w", stage, sharing.ErrConflict)
		}
	}
	if note, ok := spec.Annotations[sharing.GrantAnnotation]; ok {
		return fmt.Errorf("annotation %s is %q already; make the spec again: %w", sharing.GrantAnnotation,
			shorten(note),
			sharing.ErrConflict)
	}
	if err := checkCgroup(spec.Linux); err != nil {
		return err
	}
	return checkDevices(spec)
}

// stages are the hooks by the name that OCI and CDI give their stage.
func stages(h *specs.Hooks) map[string]*[]specs.Hook {
	if h == nil {
		return nil
	}
	return map[string]*[]specs.Hook{
		"prestart":        &h.Prestart, //nolint:staticcheck // deprecated, and still run by every runtime
		"createRuntime":   &h.CreateRuntime,
		"createContainer": &h.CreateContainer,
		"startContainer":  &h.StartContainer,
		"poststart":       &h.Poststart,
		"poststop":        &h.Poststop,
	}
}

func isOurs(h specs.Hook) bool {
	return path.Base(h.Path) == hookName || len(h.Args) > 0 && path.Base(h.Args[0]) == hookName
}

// checkCgroup: the cap is put on the container's own cgroup.
func checkCgroup(linux *specs.Linux) error {
	for _, ns := range linux.Namespaces {
		if ns.Type == specs.CgroupNamespace && ns.Path != "" {
			return sharing.Invalid("linux.namespaces", ns.Path, "give the container a separate cgroup",
				"joins another's cgroup namespace")
		}
	}
	p := linux.CgroupsPath
	if p != "" && (path.Clean("/"+p) == "/" || slices.Contains(strings.Split(p, "/"), "..")) {
		return sharing.Invalid("linux.cgroupsPath", p, "leave it out, or name a cgroup for this container alone",
			"is not a separate cgroup")
	}
	return nil
}

// checkDevices: the only GPUs are those of the grant.
func checkDevices(spec *specs.Spec) error {
	for _, d := range spec.Linux.Devices {
		if strings.HasPrefix(path.Clean(d.Path), nvidiaPrefix) || isChar(d.Type) && d.Major == nvidiaMajor {
			return sharing.Invalid("linux.devices", d.Path, withoutGPUs, "is a GPU that is not of the grant")
		}
	}
	for _, m := range spec.Mounts {
		from := path.Clean(m.Source)
		bind := m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
		if strings.HasPrefix(path.Clean(m.Destination), nvidiaPrefix) || bind &&
			(from == "/" || from == "/dev" || strings.HasPrefix(from, nvidiaPrefix)) {
			return sharing.Invalid("mounts", m.Destination, withoutGPUs, "brings GPUs that are not of the grant")
		}
	}
	if r := spec.Linux.Resources; r != nil && mayUseGPUs(r.Devices) {
		return sharing.Invalid("linux.resources.devices", "", withoutGPUs, "lets the container use every GPU")
	}
	return nil
}

// mayUseGPUs follows the rules in their order, as the runtime does, which begins with everything denied.
func mayUseGPUs(rules []specs.LinuxDeviceCgroup) bool {
	may := false
	for _, r := range rules {
		if r.Type != "" && r.Type != "a" && !isChar(r.Type) || !wild(r.Major) && *r.Major != nvidiaMajor {
			continue
		}
		read, write := r.Access == "" || strings.Contains(r.Access, "r"), r.Access == "" ||
			strings.Contains(r.Access, "w")
		switch {
		case r.Allow && (read || write):
			may = true
		case !r.Allow && read && write && wild(r.Minor):
			may = false
		}
	}
	return may
}

func isChar(t string) bool { return t == "c" || t == "u" }

func wild(n *int64) bool { return n == nil || *n < 0 }

// shorten truncates a value that is shown in an error.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
