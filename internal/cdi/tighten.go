// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

const (
	visibleEnv = "NVIDIA_VISIBLE_DEVICES"
	// void tells the older NVIDIA runtimes and hooks to add nothing by themselves.
	void = visibleEnv + "=void"
	// sourceTimeout is for hooks of the source without one, in seconds: they link files and run ldconfig.
	sourceTimeout = 60
	// limitHook is the name of NVIDIA's hook that sets a GPU memory limit on the container's cgroup. Toolkit 1.20.1
	// adds it to each device. Its amounts come from variables of the container, and it runs after kerf-hook.
	limitHook = "apply-cuda-memory-limits"
	// capsDir holds the nodes with rights over MIG itself (config, monitor) and over its instances.
	capsDir = "/dev/nvidia-caps/"
)

// tighten returns a copy of edits that shares nothing with e. Every device node states its permissions, never
// with "m". Every hook has an environment and a timeout, and no hook lets the container set its own memory limit.
func tighten(e specs.ContainerEdits) specs.ContainerEdits {
	out := specs.ContainerEdits{
		Env:            slices.Clone(e.Env),
		IntelRdt:       e.IntelRdt,
		AdditionalGIDs: slices.Clone(e.AdditionalGIDs),
	}
	for _, d := range e.DeviceNodes {
		if strings.HasPrefix(d.Path, capsDir) || strings.HasPrefix(d.HostPath, capsDir) {
			continue
		}
		node := *d
		node.Permissions = permissions(d.Permissions)
		out.DeviceNodes = append(out.DeviceNodes, &node)
	}
	for _, n := range e.NetDevices {
		device := *n
		out.NetDevices = append(out.NetDevices, &device)
	}
	for _, m := range e.Mounts {
		mount := *m
		mount.Options = slices.Clone(m.Options)
		out.Mounts = append(out.Mounts, &mount)
	}
	out.Hooks = tightenHooks(e.Hooks)
	return out
}

// tightenHooks returns copies of the hooks without limitHook.
func tightenHooks(hooks []*specs.Hook) []*specs.Hook {
	var out []*specs.Hook
	for _, h := range hooks {
		if slices.Contains(h.Args, limitHook) {
			continue
		}
		hook := *h
		hook.Args, hook.Env = slices.Clone(h.Args), slices.Clone(h.Env)
		if len(hook.Env) == 0 {
			hook.Env = []string{hookEnv}
		}
		timeout := sourceTimeout
		if h.Timeout != nil && *h.Timeout > 0 {
			timeout = *h.Timeout
		}
		hook.Timeout = &timeout
		out = append(out, &hook)
	}
	return out
}

// permissions takes mknod away: with it a container could make itself the file of another GPU. Nothing
// means all to a container runtime, so it is written out.
func permissions(p string) string {
	if p == "" {
		return "rw"
	}
	if p = strings.ReplaceAll(p, "m", ""); p == "" {
		return "none"
	}
	return p
}

func withoutVisible(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, visibleEnv+"=") })
}

func withVoid(env []string) []string { return append(withoutVisible(env), void) }
