// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package oci is the side of the OCI runtime. Server answers kerf-hook, which asks whether a container's cap is
// enforced before its program runs. Patch adds the hook, the GPUs and the environment of a grant to an OCI spec of a
// container outside pods.
//
// Promises: only root is answered, each question within the time that the hook waits. The answer is yes only when the
// Activator says so without an error. Patch changes a spec as a whole or not at all, and does not read the machine.
//
// Not promised: that the asker still waits when the answer is yes. What was activated for a container that never
// ran ends as every attachment does, when its cgroup has no process.
package oci

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/hooks/oci/wire"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	hookName = "kerf-hook"
	// hookEnv keeps the runtime from passing on the environment that it was started with.
	hookEnv = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"

	visibleEnv = "NVIDIA_VISIBLE_DEVICES"
	void       = "void"
)

// Grant is what a container that is no pod's gets.
type Grant struct {
	// ID is the grant, which the hook names to the agent.
	ID string
	// Requests are the amounts that the hook holds against the grant, one per resource. It may be empty where the
	// grant's amounts are no whole units.
	Requests []sharing.ResourceRequest
	// HookPath and Socket are absolute paths on the host: kerf-hook and the agent's socket.
	HookPath, Socket string
	// Env are variables for the program; they replace variables of the same name.
	Env map[string]string
	// Edits are those of the grant's GPUs, whole: device nodes with type, numbers and permissions, hooks with
	// environment and timeout.
	Edits cdispecs.ContainerEdits
	// Mounts are added to those of the spec, which may have none at or below their targets.
	Mounts []sharing.Mount
	// Annotation is the grant as an annotation; none is written when it is empty.
	Annotation string
}

// Patch adds a grant to the OCI spec of one container. The grant is the activation hook, one hook for each request, the
// GPUs, the environment, and the annotation. Patch is pure, and an error leaves spec as it was.
//
// Patch returns sharing.ErrConflict for a spec that is already patched, because two grants would be ambiguous. It
// returns sharing.ErrInvalid, a *FieldError, for a spec on which it cannot enforce the grant. Such a spec has no
// process or Linux part, uses the cgroup or cgroup namespace of others, has GPUs already, or may access every device.
// Edits that are incomplete or unknown to Kerf are sharing.ErrInvalid or sharing.ErrUnsupported.
func Patch(spec *specs.Spec, g Grant) error {
	if err := g.check(); err != nil {
		return err
	}
	if err := checkSpec(spec); err != nil {
		return err
	}
	if err := checkEdits(g.Edits); err != nil {
		return err
	}
	if err := checkMounts(spec, g.Mounts); err != nil {
		return err
	}
	apply(spec, g.Edits)
	for _, m := range g.Mounts {
		options := []string{"bind", "nosuid", "nodev", "rw"}
		if m.ReadOnly {
			options[3] = "ro"
		}
		spec.Mounts = append(slices.Clip(spec.Mounts), specs.Mount{Source: m.Source, Destination: m.Target,
			Type: "bind", Options: options})
	}
	env := maps.Clone(g.Env)
	if env == nil {
		env = make(map[string]string, 1)
	}
	// Whatever the image says: no older NVIDIA runtime or hook adds GPUs by itself, and none replaces the cap.
	env[visibleEnv] = void
	for _, name := range sharing.NVIDIALimitEnv() {
		spec.Process.Env = withoutEnv(spec.Process.Env, name)
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		setEnv(spec, name, env[name])
	}
	if spec.Hooks == nil {
		spec.Hooks = &specs.Hooks{}
	}
	spec.Hooks.CreateRuntime = append(slices.Clip(spec.Hooks.CreateRuntime), g.hooks()...)
	if g.Annotation != "" {
		if spec.Annotations == nil {
			spec.Annotations = make(map[string]string, 1)
		}
		spec.Annotations[sharing.GrantAnnotation] = g.Annotation
	}
	return nil
}

// checkMounts refuses a spec whose own mounts would stand in the place of the grant's.
func checkMounts(spec *specs.Spec, mounts []sharing.Mount) error {
	for _, m := range mounts {
		if !path.IsAbs(m.Source) || !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target {
			return sharing.Invalid("mount of the grant", m.Target, "", "is not of two absolute paths")
		}
		for _, own := range spec.Mounts {
			if at := path.Clean(own.Destination); at == m.Target || strings.HasPrefix(at, m.Target+"/") {
				return sharing.Invalid("mount of the spec", at, "mount it elsewhere",
					"is where the library lies that holds the container to its memory")
			}
		}
	}
	return nil
}

// hooks are the guard's and the asks', in the order of Requests sorted.
func (g Grant) hooks() []specs.Hook {
	hook := func(args ...string) specs.Hook {
		timeout := int(wire.HookTimeout.Seconds())
		return specs.Hook{
			Path:    g.HookPath,
			Args:    append([]string{hookName, sharing.HookActivate, "--socket", g.Socket, "--grant", g.ID}, args...),
			Env:     []string{hookEnv},
			Timeout: &timeout,
		}
	}
	asks := slices.Clone(g.Requests)
	sharing.SortResourceRequests(asks)
	out := []specs.Hook{hook()}
	for _, a := range asks {
		out = append(out, hook(sharing.HookRequest, a.String()))
	}
	return out
}

// check looks at what Kerf itself gives.
func (g Grant) check() error {
	const absolute = "write an absolute path without . and .. in it"
	if err := sharing.ValidateName("grant", g.ID); err != nil {
		return err
	}
	if !path.IsAbs(g.HookPath) || path.Clean(g.HookPath) != g.HookPath || path.Base(g.HookPath) != hookName {
		return sharing.Invalid("path of the hook", g.HookPath, absolute, "is not a path of "+hookName)
	}
	if !path.IsAbs(g.Socket) || path.Clean(g.Socket) != g.Socket {
		return sharing.Invalid("socket of the hook", g.Socket, absolute, "is not the path of a socket")
	}
	for i, a := range g.Requests {
		if _, err := sharing.ParseResourceRequest(a.String()); err != nil {
			return err
		}
		if slices.ContainsFunc(g.Requests[:i],
			func(b sharing.ResourceRequest) bool { return b.Resource == a.Resource }) {
			return sharing.Invalid("request", a.String(), "give each resource one amount", "is a second amount of %s",
				a.Resource)
		}
	}
	for name, value := range g.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return sharing.Invalid("environment variable", name+"="+value, "", "cannot be one")
		}
	}
	return nil
}

// setEnv replaces a variable, also one that stands there more than once: programs take the first.
func setEnv(spec *specs.Spec, name, value string) {
	spec.Process.Env = append(withoutEnv(spec.Process.Env, name), name+"="+value)
}

// withoutEnv is a copy of env without the variable.
func withoutEnv(env []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		have, _, _ := strings.Cut(v, "=")
		return have == name
	})
}

// checkEdits rejects edits that depend on the machine, and those that would give more than the grant. A container
// runtime takes missing permissions for all of them, and a missing timeout for none.
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
			return sharing.Invalid("device node of the GPU's edits", d.Path, "",
				"is not whole: type %q, numbers %d:%d, permissions %q (of r and w)", d.Type, d.Major, d.Minor,
				d.Permissions)
		}
	}
	for _, m := range e.Mounts {
		if !path.IsAbs(m.HostPath) || !path.IsAbs(m.ContainerPath) {
			return sharing.Invalid("mount of the GPU's edits", m.ContainerPath, "", "is not of two absolute paths")
		}
	}
	for _, h := range e.Hooks {
		if _, ok := stages(&specs.Hooks{})[h.HookName]; !ok || !path.IsAbs(h.Path) || len(h.Env) == 0 ||
			h.Timeout == nil || *h.Timeout <= 0 {
			return sharing.Invalid("hook of the GPU's edits", h.Path, "",
				"is not whole: stage %q, environment %q, timeout", h.HookName, h.Env)
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
		spec.Mounts = append(spec.Mounts, specs.Mount{Source: m.HostPath, Destination: m.ContainerPath, Type: m.Type,
			Options: slices.Clone(m.Options)})
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
	node := specs.LinuxDevice{Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor, FileMode: d.FileMode,
		UID: d.UID, GID: d.GID}
	if uid := spec.Process.User.UID; node.UID == nil && uid > 0 {
		node.UID = &uid
	}
	if gid := spec.Process.User.GID; node.GID == nil && gid > 0 {
		node.GID = &gid
	}
	linux := spec.Linux
	linux.Devices = slices.DeleteFunc(slices.Clone(linux.Devices),
		func(have specs.LinuxDevice) bool { return path.Clean(have.Path) == path.Clean(d.Path) })
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
	linux.Resources.Devices = append(slices.Clip(linux.Resources.Devices),
		specs.LinuxDeviceCgroup{Allow: true, Type: kind, Major: &major, Minor: &minor, Access: d.Permissions})
}
