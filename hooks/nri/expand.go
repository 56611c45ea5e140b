// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

// resolve replaces the CDI devices of an adjustment by what they change, for runtimes that ignore CDI devices of
// plugins. CRI-O 1.34 does: its server/nri-api.go passes no injector of CDI devices.
func (s *session) resolve(a *api.ContainerAdjustment, c *api.Container, in sharing.Injection) error {
	if s.edits == nil {
		return nil
	}
	e, err := s.edits(in)
	if err != nil {
		return err
	}
	a.CDIDevices = nil
	return applyEdits(a, c, e)
}

// applyEdits adds edits of CDI devices. The adjustment's own variables win, as they set the same ones. An edit that NRI
// cannot express is an error, since the container would lack a part of its GPU.
func applyEdits(a *api.ContainerAdjustment, c *api.Container, e specs.ContainerEdits) error {
	if len(e.AdditionalGIDs) > 0 || len(e.NetDevices) > 0 || e.IntelRdt != nil {
		return fmt.Errorf("container %q: the CDI spec of its GPU has groups, network devices or RDT classes, which "+
			"plugins of this container runtime cannot give: %w", c.GetName(), sharing.ErrUnsupported)
	}
	for _, variable := range e.Env {
		name, value, _ := strings.Cut(variable, "=")
		if !slices.ContainsFunc(a.Env, func(have *api.KeyValue) bool { return have.Key == name }) {
			setEnv(a, name, value)
		}
	}
	for _, d := range e.DeviceNodes {
		a.AddDevice(deviceOf(d))
	}
	for _, m := range e.Mounts {
		a.AddMount(&api.Mount{Source: m.HostPath, Destination: m.ContainerPath, Type: m.Type, Options: m.Options})
	}
	for _, h := range e.Hooks {
		if err := addHook(a, h); err != nil {
			return fmt.Errorf("container %q: %w", c.GetName(), err)
		}
	}
	return nil
}

func deviceOf(d *specs.DeviceNode) *api.LinuxDevice {
	out := &api.LinuxDevice{Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor}
	if d.FileMode != nil {
		out.FileMode = api.FileMode(*d.FileMode)
	}
	if d.UID != nil {
		out.Uid = api.UInt32(*d.UID)
	}
	if d.GID != nil {
		out.Gid = api.UInt32(*d.GID)
	}
	return out
}

// addHook adds one hook to those of its stage.
func addHook(a *api.ContainerAdjustment, h *specs.Hook) error {
	hook := &api.Hook{Path: h.Path, Args: h.Args, Env: h.Env}
	if h.Timeout != nil {
		hook.Timeout = api.Int(*h.Timeout)
	}
	one, hooks := []*api.Hook{hook}, &api.Hooks{}
	switch h.HookName {
	case "prestart":
		hooks.Prestart = one
	case "createRuntime":
		hooks.CreateRuntime = one
	case "createContainer":
		hooks.CreateContainer = one
	case "startContainer":
		hooks.StartContainer = one
	case "poststart":
		hooks.Poststart = one
	case "poststop":
		hooks.Poststop = one
	default:
		return fmt.Errorf("the CDI spec of its GPU has a hook at %q: %w", h.HookName, sharing.ErrUnsupported)
	}
	a.AddHooks(hooks)
	return nil
}
