// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/kerf-gpu/kerf/sharing"
)

// The variable by which NVIDIA's container runtime chooses GPUs, and its value for none and no libraries.
const (
	visibleEnv  = "NVIDIA_VISIBLE_DEVICES"
	visibleVoid = "void"
)

// adjustGuarded gives a container its grant. It needs no checkVisible: the CDI spec of kerf.dev/gpu sets the
// variable too, and the runtime resolves CDI devices after the environment.
func adjustGuarded(c *api.Container, in sharing.Injection) (*api.ContainerAdjustment, error) {
	if err := checkAsked(c); err != nil {
		return nil, err
	}
	if len(in.Placement) == 0 || in.Annotation == "" {
		return nil, fmt.Errorf("container %q: grant %q has no GPU or no note: %w", c.GetName(), in.Grant,
			sharing.ErrUnavailable)
	}
	a := &api.ContainerAdjustment{}
	switch {
	case in.Device.UUID != "": // it brings its GPU's own file
		a.AddCDIDevice(&api.CDIDevice{Name: sharing.CDIMIG + "=" + in.Device.UUID})
	case slices.ContainsFunc(in.Placement, func(f sharing.Share) bool { return !f.MIG.None() }):
		return nil, fmt.Errorf("container %q: the MIG instance of grant %q has no device: %w", c.GetName(), in.Grant,
			sharing.ErrUnavailable)
	default:
		for _, f := range in.Placement {
			a.AddCDIDevice(&api.CDIDevice{Name: sharing.CDIGPU + "=" + f.GPU.String()})
		}
	}
	env := maps.Clone(in.Env)
	if env == nil {
		env = map[string]string{}
	}
	env[visibleEnv] = visibleVoid
	for _, key := range slices.Sorted(maps.Keys(env)) {
		setEnv(a, key, env[key])
	}
	if err := clearLimitEnv(a, c); err != nil {
		return nil, err
	}
	a.AddAnnotation(sharing.GrantAnnotation, in.Annotation)
	return a, addMounts(a, c, in.Mounts)
}

// addMounts gives a container the mounts of its grant. What it would mount itself at or below one of them would
// stand in the place of what holds it, and is refused.
func addMounts(a *api.ContainerAdjustment, c *api.Container, mounts []sharing.Mount) error {
	for _, m := range mounts {
		for _, own := range c.GetMounts() {
			at := path.Clean(own.GetDestination())
			if at != m.Target && !strings.HasPrefix(at, m.Target+"/") || podsShm(c, own) {
				continue
			}
			remedy, why := "mount it elsewhere", "is where that lies which holds the container to its memory"
			if m.Target == shm {
				remedy = "leave it out, and hostIPC too: there is half of the node's memory"
				why = "is where the container finds the shared memory of its MPS daemon"
			}
			return fmt.Errorf("container %q: %w", c.GetName(), sharing.Invalid("volume mount", at, remedy, "%s", why))
		}
		options := []string{"bind", "nosuid", "nodev", "rw"}
		if m.ReadOnly {
			options[3] = "ro"
		}
		a.AddMount(&api.Mount{Source: m.Source, Destination: m.Target, Type: "bind", Options: options})
	}
	return nil
}

// shm is where every container has something mounted, if nothing else then what its pod shares.
const shm = "/dev/shm"

// podsShm reports whether a mount is the one that the container runtime gives to all containers of a pod, and no volume
// of the pod. It lies in a folder that is named after the sandbox. Kerf's mount takes its place.
func podsShm(c *api.Container, m *api.Mount) bool {
	dir, id := path.Dir(path.Clean(m.GetSource())), c.GetPodSandboxId()
	return path.Clean(m.GetDestination()) == shm && id != "" && slices.Contains(strings.Split(dir, "/"), id)
}

// adjustOther hides the GPUs from a container that has no grant. A note that it carries is none of ours, and
// is taken away. It returns nil when there is nothing to do.
func adjustOther(c *api.Container, exempt bool) (*api.ContainerAdjustment, error) {
	a := &api.ContainerAdjustment{}
	_, forged := c.GetAnnotations()[sharing.GrantAnnotation]
	if forged {
		a.RemoveAnnotation(sharing.GrantAnnotation)
	}
	if exempt {
		if forged {
			return a, nil
		}
		return nil, nil
	}
	if err := checkVisible(c); err != nil {
		return nil, err
	}
	if err := checkAsked(c); err != nil {
		return nil, err
	}
	setEnv(a, visibleEnv, visibleVoid)
	return a, nil
}

// setEnv sets a variable, whatever the container or another plugin has under that name.
func setEnv(a *api.ContainerAdjustment, key, value string) {
	a.RemoveEnv(key) // of another plugin: two that set one name are a conflict otherwise
	a.AddEnv(key, value)
}

// askRoots are mount paths that request GPUs from NVIDIA's container runtime, if its config allows that. They take
// precedence over the environment.
func askRoots() []string {
	return []string{"/var/run/nvidia-container-devices", "/run/nvidia-container-devices"}
}

// checkAsked rejects a container that requests GPUs from NVIDIA's container runtime by a mount. It first cleans the
// target, as that runtime does. NVIDIA's device plugin can do so for its own pods (deviceListStrategy:
// volume-mounts). A tenant's mount looks the same, so such pods need an exempt namespace.
func checkAsked(c *api.Container) error {
	for _, m := range c.GetMounts() {
		at := path.Clean("/" + m.GetDestination())
		for _, root := range askRoots() {
			if strings.HasPrefix(at, root+"/") {
				return fmt.Errorf("container %q: %w", c.GetName(), sharing.Invalid("volume mount", at,
					"leave it out of the pod", "asks NVIDIA's runtime for GPUs that the container was not given"))
			}
		}
	}
	return nil
}

// checkVisible refuses a container without a grant that would keep GPUs visible in spite of setEnv. The runtime
// replaces the first of several variables of one name, and lets those after it replace it again.
func checkVisible(c *api.Container) error {
	times := 0
	for _, e := range c.GetEnv() {
		key, value, _ := strings.Cut(e, "=")
		if key != visibleEnv {
			continue
		}
		times++
		if times > 1 && value != "" && value != visibleVoid && value != "none" {
			return fmt.Errorf("container %q: %w", c.GetName(), sharing.Invalid("environment variable "+visibleEnv,
				value,
				"leave it out of the pod",
				"is set by the image and again by the pod, and would show the container GPUs that it was not given"))
		}
	}
	return nil
}

// cdiNames are the CDI devices that kubelet passed. A runtime that does not report them (containerd before 2.3) reports
// the hooks that they brought. These identify the hook device and the requests. Advice about NUMA nodes has no hook, so
// it is lost.
func cdiNames(c *api.Container) []string {
	var names []string
	for _, d := range c.GetCDIDevices() {
		names = append(names, d.GetName())
	}
	if len(names) > 0 {
		return names
	}
	for _, h := range c.GetHooks().GetCreateRuntime() {
		if name, ours := sharing.DeviceOfHook(h.GetPath(), h.GetArgs()); ours {
			names = append(names, name)
		}
	}
	return names
}

// seenOf is the container runtime's list in the node's words. A container of an unlisted sandbox has no pod.
func seenOf(pods []*api.PodSandbox, containers []*api.Container) []sharing.Seen {
	boxes := make(map[string]sandbox, len(pods))
	for _, p := range pods {
		boxes[p.GetId()] = sandboxOf(p)
	}
	seen := make([]sharing.Seen, 0, len(containers))
	for _, c := range containers {
		s := sharing.Seen{ID: c.GetId(), Ref: boxes[c.GetPodSandboxId()].ref(c.GetName()), PID: int(c.GetPid()),
			CDINames: cdiNames(c)}
		switch c.GetState() {
		case api.ContainerState_CONTAINER_RUNNING, api.ContainerState_CONTAINER_PAUSED:
			s.Running = true
		case api.ContainerState_CONTAINER_STOPPED:
			s.Removed, s.PID = true, 0 // CRI starts no container twice
		case api.ContainerState_CONTAINER_CREATED, api.ContainerState_CONTAINER_UNKNOWN:
			s.Running = s.PID > 0 // made by the OCI runtime, and not said to run yet
		}
		if slices.Contains(s.CDINames, sharing.HookDevice) {
			s.Annotation = c.GetAnnotations()[sharing.GrantAnnotation]
		}
		seen = append(seen, s)
	}
	return seen
}

// clearLimitEnv empties the variables by which NVIDIA's limit hook would replace the cap. That hook fails on an empty
// value, so a container whose spec still has it does not start. NRI 0.12.5 passes no removal of a variable on to the
// runtime, so the variable cannot be taken away (TestRemovedVariablesStay).
//
// A variable that the container has twice is rejected: the runtime replaces the first value and then lets the second
// one win.
func clearLimitEnv(a *api.ContainerAdjustment, c *api.Container) error {
	for _, name := range sharing.NVIDIALimitEnv() {
		times := 0
		for _, e := range c.GetEnv() {
			if key, _, _ := strings.Cut(e, "="); key == name {
				times++
			}
		}
		switch {
		case times == 1:
			setEnv(a, name, "")
		case times > 1:
			return fmt.Errorf("container %q: %w", c.GetName(), sharing.Invalid("environment variable", name,
				"leave it out of the pod",
				"is set by the image and again by the pod; Kerf sets the container's GPU memory limit"))
		}
	}
	return nil
}
