// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
)

// kernelVersion reads major and minor out of a kernel release.
func kernelVersion(release string) (major, minor int, ok bool) {
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return 0, 0, false
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil || major < 0 {
		return 0, 0, false
	}
	digits := strings.IndexFunc(parts[1], func(r rune) bool { return r < '0' || r > '9' })
	if digits >= 0 {
		parts[1] = parts[1][:digits]
	}
	minor, err = strconv.Atoi(parts[1])
	return major, minor, err == nil
}

func (f Facts) kernel() Check {
	c := Check{Name: "kernel", Seen: f.Kernel}
	major, minor, ok := kernelVersion(f.Kernel)
	switch {
	case !ok:
		c.Status, c.Means = Unknown, "cannot tell whether the kernel has pidfds, by which the agent knows its callers"
		if c.Seen == "" {
			c.Seen = "no kernel release"
		}
	case major < 5 || major == 5 && minor < 3:
		c.Status, c.Means = Missing, "no pidfds (5.3): the agent cannot know its callers for sure"
		c.Mend = "boot a kernel of at least 5.3"
	default:
		c.Status, c.Means = OK, "has pidfds, by which the agent knows its callers"
	}
	return c
}

func (f Facts) root() Check {
	if f.Root {
		return Check{Name: "root", Status: OK, Seen: "running as root", Means: "may run kerf-agent, and kerf run can hide the other GPUs"}
	}
	return Check{
		Name: "root", Status: Warn, Seen: "not running as root",
		Means: "kerf run works through the agent's socket; the other GPUs are then held by the least limit and not hidden, and some checks see less",
		Mend:  "for a full view: sudo kerf doctor",
	}
}

// pidNamespace looks at this program's own: an agent that was started in another way may be in another one, and says so.
func (f Facts) pidNamespace() Check {
	c := Check{Name: "pid namespace", Seen: fmt.Sprintf("pid:[%d]", f.PIDSpace)}
	switch f.PIDSpace {
	case 0:
		c.Status, c.Seen, c.Means = Unknown, "could not be read", "cannot tell which processes the driver lists"
	case process.InitialPIDSpace:
		c.Status, c.Seen, c.Means = OK, "the machine's", "the driver lists the processes of the whole machine here"
	default:
		c.Status, c.Means = Warn, "not the machine's: the driver leaves out processes outside it, so an agent here does not watch shares (level reactive)"
		c.Mend = "run kerf-agent in the machine's pid namespace; in a pod, set hostPID: true"
	}
	return c
}

func (f Facts) cgroupV2() Check {
	c := Check{Name: "cgroup v2"}
	switch {
	case f.Cgroup.V2 == "":
		c.Status, c.Seen = Missing, f.Cgroup.Problem
		if c.Seen == "" {
			c.Seen = "not mounted"
		}
		c.Means = "no grants: a grant lives as long as its cgroup, and the driver's memory limit is per cgroup v2"
		c.Mend = "boot with systemd.unified_cgroup_hierarchy=1, or: mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified"
	case f.Cgroup.Unusable != "" && f.Agent.Ready:
		c.Status, c.Seen = OK, fmt.Sprintf("v2 at %s; the agent can make groups, and this program cannot: %s", f.Cgroup.V2, f.Cgroup.Unusable)
		c.Means = "grants can be made"
	case f.Cgroup.Unusable != "":
		c.Status, c.Seen = Missing, fmt.Sprintf("v2 at %s, where no group can be made: %s", f.Cgroup.V2, f.Cgroup.Unusable)
		c.Means, c.Mend = "no grants: kerf-agent does not start here", f.Cgroup.Remedy
	case f.Cgroup.V1:
		c.Status, c.Seen = OK, fmt.Sprintf("v2 at %s, next to v1 controllers (hybrid)", f.Cgroup.V2)
		c.Means = "grants can be made; controllers that v1 holds (dmem is v2 alone) are not here"
	default:
		c.Status, c.Seen, c.Means = OK, "v2 at "+f.Cgroup.V2, "grants can be made"
	}
	return c
}

func (f Facts) dmem() Check {
	c := Check{Name: "dmem controller"}
	switch {
	case f.Cgroup.V2 == "":
		c.Status, c.Seen, c.Means = Unknown, "no cgroup v2 to look in", "see cgroup v2"
	case f.Cgroup.Controllers == nil:
		c.Status, c.Seen, c.Means = Unknown, "the controllers could not be read", "cannot tell which of its two ways the driver takes for memory limits"
		c.Mend = "look at " + f.Cgroup.V2 + "/cgroup.controllers"
	case slices.Contains(f.Cgroup.Controllers, "dmem"):
		c.Status, c.Seen, c.Means = OK, "available", "the driver keeps memory limits in the kernel's dmem controller, with nesting"
	default:
		c.Status, c.Seen = Warn, "not available"
		c.Means = "the driver keeps memory limits in a table of its own: they hold, but cannot be nested or lowered below what is in use"
		c.Mend = "boot a kernel of at least 6.14 with CONFIG_CGROUP_DMEM=y and without cgroup_disable=dmem"
	}
	return c
}

func (f Facts) group() Check {
	c := Check{Name: "group kerf"}
	switch {
	case !f.Group.Known:
		c.Status, c.Seen, c.Means = Unknown, "the group database could not be read: "+f.Group.Problem, "cannot tell who may use the agent's socket"
	case !f.Group.Exists:
		c.Status, c.Seen, c.Means = Warn, "no such group", "only root can use kerf run"
		c.Mend = "groupadd --system kerf && usermod -aG kerf USER, then restart kerf-agent and log in again"
	case !f.Group.Member && !f.Root:
		c.Status, c.Seen, c.Means = Warn, "exists; this user is not a member", "this user cannot use the agent's socket"
		c.Mend = "sudo usermod -aG kerf $USER, then log in again"
	default:
		c.Status, c.Seen, c.Means = OK, "exists", "its members can use kerf run without being root"
	}
	return c
}

func (f Facts) mps() Check {
	if f.MPSControl == "" {
		return Check{
			Name: "MPS", Status: Warn, Seen: "nvidia-cuda-mps-control is not in PATH",
			Means: "kernels of different grants take turns on a GPU instead of running side by side; memory caps do not need it",
			Mend:  "install the NVIDIA driver's compute utilities (Debian: nvidia-cuda-mps, Ubuntu: nvidia-compute-utils)",
		}
	}
	return Check{Name: "MPS", Status: OK, Seen: f.MPSControl, Means: "the control program is installed; the agent runs it for pools that list mps"}
}

func (f Facts) cdi() Check {
	if len(f.CDISpecs) == 0 {
		return Check{
			Name: "CDI", Status: Warn, Seen: "no NVIDIA spec in /etc/cdi or /var/run/cdi",
			Means: "container engines cannot be given GPUs by name; kerf run needs no spec",
			Mend:  "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
		}
	}
	return Check{Name: "CDI", Status: OK, Seen: strings.Join(f.CDISpecs, ", "), Means: "container engines can be given GPUs by name"}
}

// Setting is how the agent's library and device files were to reach it, in the chart's words.
type Setting string

const (
	// OnNode is a program of the node itself, which sees what the node has.
	OnNode Setting = ""
	// ByRuntimeClass is that NVIDIA's runtime puts both into the agent's container.
	ByRuntimeClass Setting = "runtimeClass"
	// ByHostLibrary is that the container is privileged, so that it has the node's device files, and the library is mounted.
	ByHostLibrary Setting = "hostLibrary"
)

// ParseSetting reads a value of the chart's "driver". The error is a *sharing.FieldError of field.
func ParseSetting(field, text string) (Setting, error) {
	switch s := Setting(text); s {
	case OnNode, ByRuntimeClass, ByHostLibrary:
		return s, nil
	}
	return OnNode, sharing.Invalid(field, text, "write runtimeClass or hostLibrary, as the chart has it, or leave it out", "is no way to the driver")
}

// mendDevices makes the device files.
const mendDevices = "nvidia-modprobe -c 0 -u, or start nvidia-persistenced"

// Mend says what to do where an agent of this setting lacks this; empty for nothing lacking.
func (s Setting) Mend(lack nvml.Lack) string {
	const (
		handler = `let the handler of the pod's runtime class be NVIDIA's runtime ("nvidia-ctk runtime configure" on the node, then ` +
			`restart the container runtime) and delete this pod; or let the chart's "driver" be hostLibrary ` +
			`(deploy/variants/privileged.yaml)`
		load = `load the driver on the node (modprobe nvidia; nvidia-modprobe -c 0 -u)`
	)
	switch lack {
	case nvml.LackLibrary:
		switch s {
		case ByRuntimeClass:
			return "NVIDIA's runtime, which is to bring the library, did not make this container: " + handler
		case ByHostLibrary:
			return `what is mounted is not the driver's library: let the chart's "driverLibrary" (volume driver-library) name the ` +
				`node's own libnvidia-ml.so.1`
		case OnNode:
			return mendDriver
		}
	case nvml.LackDevices:
		switch s {
		case ByRuntimeClass:
			return "NVIDIA's runtime, which is to bring the device files, has brought none that work: " + load + "; " + handler
		case ByHostLibrary:
			return "a privileged container has the device files that the node had as it started: " + load + ", and delete this pod"
		case OnNode:
			return mendDevices
		}
	case nvml.LackNone:
	}
	return ""
}
