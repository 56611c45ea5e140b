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
	c := Check{Name: "kernel", Found: f.Kernel}
	major, minor, ok := kernelVersion(f.Kernel)
	switch {
	case !ok:
		c.Status, c.Effect = Unknown,
			"unknown whether the kernel has pidfds, which the agent needs to identify its callers"
		if c.Found == "" {
			c.Found = "no kernel release"
		}
	case major < 5 || major == 5 && minor < 3:
		c.Status, c.Effect = Missing, "no pidfds (5.3): the agent cannot identify its callers"
		c.Fix = "boot a kernel of at least 5.3"
	default:
		c.Status, c.Effect = OK, "pidfds identify callers of the agent"
	}
	return c
}

func (f Facts) root() Check {
	if f.Root {
		return Check{Name: "root", Status: OK, Found: "running as root",
			Effect: "can run kerf-agent, and kerf run can hide other GPUs"}
	}
	return Check{
		Name: "root", Status: Warn, Found: "not running as root",
		Effect: "kerf run works, but caps other GPUs at the minimum instead of hiding them; some checks are not " +
			"possible",
		Fix: "for all checks: sudo kerf doctor",
	}
}

// pidNamespace looks at this program's own: an agent that was started in another way may be in another one, and says
// so.
func (f Facts) pidNamespace() Check {
	c := Check{Name: "PID namespace", Found: fmt.Sprintf("pid:[%d]", f.PIDSpace)}
	switch f.PIDSpace {
	case 0:
		c.Status, c.Found, c.Effect = Unknown, "not readable", "unknown which processes the driver lists"
	case process.InitialPIDSpace:
		c.Status, c.Found, c.Effect = OK, "of the host", "the driver lists all processes of the host"
	default:
		c.Status, c.Effect = Warn,
			"not of the host: the driver omits processes outside it, so level reactive is not possible"
		c.Fix = "run kerf-agent in the host's PID namespace; in a pod, set hostPID: true"
	}
	return c
}

func (f Facts) cgroupV2() Check {
	c := Check{Name: checkCgroup}
	switch {
	case f.Cgroup.V2 == "":
		c.Status, c.Found = Missing, f.Cgroup.Problem
		if c.Found == "" {
			c.Found = "not mounted"
		}
		c.Effect = "no grants: each grant needs a cgroup v2"
		c.Fix = "boot with systemd.unified_cgroup_hierarchy=1, or: mkdir -p /sys/fs/cgroup/unified && mount -t " +
			"cgroup2 cgroup2 /sys/fs/cgroup/unified"
	case f.Cgroup.Unusable != "" && f.Agent.Ready:
		c.Status, c.Found = OK, fmt.Sprintf("v2 at %s; the agent can create groups, this program cannot: %s",
			f.Cgroup.V2, f.Cgroup.Unusable)
		c.Effect = "grants are possible"
	case f.Cgroup.Unusable != "":
		c.Status, c.Found = Missing, fmt.Sprintf("v2 at %s; no group can be created: %s", f.Cgroup.V2,
			f.Cgroup.Unusable)
		c.Effect, c.Fix = "no grants: kerf-agent does not start here", f.Cgroup.Remedy
	case f.Cgroup.V1:
		c.Status, c.Found = OK, fmt.Sprintf("v2 at %s, next to v1 controllers (hybrid)", f.Cgroup.V2)
		c.Effect = "grants are possible; v2 lacks controllers that v1 has"
	default:
		c.Status, c.Found, c.Effect = OK, "v2 at "+f.Cgroup.V2, "grants are possible"
	}
	return c
}

func (f Facts) dmem() Check {
	c := Check{Name: "dmem controller"}
	switch {
	case f.Cgroup.V2 == "":
		c.Status, c.Found, c.Effect, c.Cause = Unknown, "no cgroup v2", "see cgroup v2", checkCgroup
	case f.Cgroup.Controllers == nil:
		c.Status, c.Found, c.Effect = Unknown, "controllers not readable",
			"unknown whether the driver stores memory limits in dmem"
		c.Fix = "read " + f.Cgroup.V2 + "/cgroup.controllers"
	case slices.Contains(f.Cgroup.Controllers, "dmem"):
		c.Status, c.Found, c.Effect = OK, "available",
			"the driver stores memory limits in the dmem controller, with nesting"
	default:
		c.Status, c.Found = Warn, "not available"
		c.Effect = "the driver stores memory limits itself: no nesting, and no cap below the current usage"
		c.Fix = "boot kernel 6.14 or newer with CONFIG_CGROUP_DMEM=y and without cgroup_disable=dmem"
	}
	return c
}

func (f Facts) group() Check {
	c := Check{Name: "group kerf"}
	switch {
	case !f.Group.Known:
		c.Status, c.Found, c.Effect = Unknown, "group database not readable: "+f.Group.Problem,
			"unknown who may use the agent's socket"
	case !f.Group.Exists:
		c.Status, c.Found, c.Effect = Warn, "no such group", "only root can use kerf run"
		c.Fix = "groupadd --system kerf && usermod -aG kerf USER, then restart kerf-agent and log in again"
	case !f.Group.Member && !f.Root:
		c.Status, c.Found, c.Effect = Warn, "exists; this user is not a member",
			"this user cannot use the agent's socket"
		c.Fix = "sudo usermod -aG kerf $USER, then log in again"
	default:
		c.Status, c.Found, c.Effect = OK, "exists", "its members can use kerf run without root"
	}
	return c
}

func (f Facts) mps() Check {
	if f.MPSControl == "" {
		return Check{
			Name: "MPS", Status: Warn, Found: "nvidia-cuda-mps-control is not in PATH",
			Effect: "kernels of different grants run one after the other; memory caps do not need MPS",
			Fix: "install the NVIDIA driver's compute utilities (Debian: nvidia-cuda-mps, Ubuntu: " +
				"nvidia-compute-utils)",
		}
	}
	return Check{Name: "MPS", Status: OK, Found: f.MPSControl, Effect: "the agent runs it for pools that list mps"}
}

func (f Facts) cdi() Check {
	if len(f.CDISpecs) == 0 {
		return Check{
			Name: "CDI", Status: Warn, Found: "no NVIDIA spec in /etc/cdi or /var/run/cdi",
			Effect: "container engines cannot request GPUs by CDI name; kerf run needs no spec",
			Fix:    "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
		}
	}
	return Check{Name: "CDI", Status: OK, Found: strings.Join(f.CDISpecs, ", "),
		Effect: "container engines can request GPUs by CDI name"}
}

// Setting is how the agent's library and device files were to reach it, in the chart's words.
type Setting string

const (
	// OnNode is a program of the node itself, which sees what the node has.
	OnNode Setting = ""
	// ByRuntimeClass is that NVIDIA's runtime puts both into the agent's container.
	ByRuntimeClass Setting = "runtimeClass"
	// ByHostLibrary is that the container is privileged, so that it has the node's device files, and the library is
	// mounted.
	ByHostLibrary Setting = "hostLibrary"
)

// ParseSetting reads a value of the chart's "driver". The error is a *sharing.FieldError of field.
func ParseSetting(field, text string) (Setting, error) {
	switch s := Setting(text); s {
	case OnNode, ByRuntimeClass, ByHostLibrary:
		return s, nil
	}
	return OnNode, sharing.Invalid(field, text,
		"write runtimeClass or hostLibrary, as the chart has it, or leave it out", "is no way to the driver")
}

// fixDevices makes the device files.
const fixDevices = "nvidia-modprobe -c 0 -u, or start nvidia-persistenced"

// Fix says what to do if an agent with this setting lacks something; empty if it lacks nothing.
func (s Setting) Fix(lack nvml.Lack) string {
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
			return fixDriver
		}
	case nvml.LackDevices:
		switch s {
		case ByRuntimeClass:
			return "NVIDIA's runtime, which is to bring the device files, has brought none that work: " + load + "; " +
				handler
		case ByHostLibrary:
			return "a privileged container has the device files that the node had as it started: " + load +
				", and delete this pod"
		case OnNode:
			return fixDevices
		}
	case nvml.LackNone:
	}
	return ""
}
