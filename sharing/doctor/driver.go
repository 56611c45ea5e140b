// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

const mendDriver = "install the NVIDIA driver and load it (modprobe nvidia); nvidia-smi must answer"

func (f Facts) library() Check {
	c := Check{Name: "driver library", Seen: f.Driver.Library}
	if f.Driver.Library != "" {
		c.Status, c.Means = OK, "the driver can be asked"
		return c
	}
	c.Seen = f.Driver.Problem
	if c.Seen == "" {
		c.Seen = "libnvidia-ml.so.1 was not found"
	}
	if f.Agent.Answered && f.Agent.DriverVersion != "" {
		c.Status, c.Means = Warn, "the agent has a driver that this command does not see; the checks of the driver below are blind"
		c.Mend = "run kerf doctor with the agent's LD_LIBRARY_PATH"
		return c
	}
	c.Status, c.Means, c.Mend = Missing, "no GPU can be seen, so nothing can be granted", mendDriver
	return c
}

// blind is the check of something that only the driver could tell.
func blind(name string) Check {
	return Check{Name: name, Status: Unknown, Seen: "the driver could not be asked", Means: "see driver library"}
}

func (f Facts) driverVersion() Check {
	const name = "driver version"
	switch {
	case f.Driver.Version != "":
		return Check{Name: name, Status: OK, Seen: f.Driver.Version, Means: "the driver answers"}
	case f.Agent.DriverVersion != "":
		return Check{Name: name, Status: OK, Seen: f.Agent.DriverVersion + " (told by the agent)", Means: "the driver answers the agent"}
	}
	return blind(name)
}

func (f Facts) memoryLimits() Check {
	const name = "memory limits"
	switch {
	case f.Driver.Library == "":
		return blind(name)
	case f.Driver.MemoryLimits:
		return Check{Name: name, Status: OK, Seen: "the library has nvmlDeviceSetMemoryLimits_v1", Means: "the driver itself can hold a grant to its memory"}
	}
	return Check{
		Name: name, Status: Missing, Seen: "the library has no nvmlDeviceSetMemoryLimits_v1",
		Means: "no grants of a part of a GPU at level driver; whole GPUs can be granted", Mend: "install driver r615 or newer",
	}
}

func (f Facts) deviceFiles() Check {
	const name = "device files"
	var gpus int
	var control bool
	for _, d := range f.Driver.Devices {
		if d == "nvidiactl" {
			control = true
		} else {
			gpus++
		}
	}
	c := Check{Name: name, Seen: strings.Join(f.Driver.Devices, ", "), Mend: mendDevices}
	switch {
	case gpus > 0 && control:
		c.Status, c.Means, c.Mend = OK, "programs can open the GPUs", ""
	case gpus > 0 || control:
		c.Status, c.Means = Missing, "a part of the device files is not there: programs cannot use the GPUs"
	case f.Agent.Answered && f.Agent.DriverVersion != "":
		c.Status, c.Seen, c.Means, c.Mend = Unknown, "none in /dev", "the agent has a driver; its device files may lie elsewhere (kerf-agent --dev-root)", ""
	default:
		c.Status, c.Seen, c.Means = Missing, "none in /dev", "programs cannot use a GPU"
		if f.Driver.Library == "" {
			c.Mend = mendDriver
		}
	}
	return c
}

func (f Facts) gpus() Check {
	const name = "GPUs"
	if f.Driver.Library == "" {
		return blind(name)
	}
	if f.Driver.GPUProblem != "" {
		return Check{Name: name, Status: Unknown, Seen: f.Driver.GPUProblem, Means: "cannot tell what could be granted", Mend: "see whether nvidia-smi answers, and dmesg for NVRM and Xid"}
	}
	seen := kinds(f.Driver.GPUs)
	c := Check{Name: name, Status: OK, Seen: strings.Join(seen, "; "), Means: "this much memory can be granted"}
	switch {
	case len(f.Driver.GPUs) == 0:
		c.Status, c.Means = Missing, "there is nothing to grant"
		c.Seen = "the driver has no usable GPU"
		c.Mend = "see nvidia-smi, lspci -d 10de: and dmesg for NVRM and Xid"
	case len(f.Driver.LeftOut) > 0:
		c.Status, c.Means, c.Mend = Warn, "some GPUs cannot be used", "see dmesg for NVRM and Xid"
	}
	if len(f.Driver.LeftOut) > 0 {
		c.Seen += "; left out: " + strings.Join(f.Driver.LeftOut, "; ")
	}
	return c
}

// kinds counts GPUs of the same model and size, in the order in which they come.
func kinds(gpus []sharing.GPU) []string {
	count := map[string]int{}
	var order []string
	for _, g := range gpus {
		kind := fmt.Sprintf("%s with %s", g.Model, g.Usable())
		if count[kind]++; count[kind] == 1 {
			order = append(order, kind)
		}
	}
	for i, kind := range order {
		order[i] = fmt.Sprintf("%d x %s", count[kind], kind)
	}
	return order
}

func (f Facts) mig() Check {
	const name = "MIG mode"
	if f.Driver.Library == "" || f.Driver.GPUProblem != "" {
		return blind(name)
	}
	var on []string
	for _, g := range f.Driver.GPUs {
		if g.MIG {
			on = append(on, fmt.Sprint(g.Index))
		}
	}
	if len(on) == 0 {
		return Check{Name: name, Status: OK, Seen: "off", Means: "GPUs can be shared and given whole"}
	}
	return Check{
		Name: name, Status: Warn, Seen: "on for GPU " + strings.Join(on, ", "),
		Means: "they are given in MIG instances, and neither shared nor given whole",
		Mend:  "nothing, where that is wanted; else a layout with enabled: false in the pool (mig), or, when nothing uses them, nvidia-smi -i " + strings.Join(on, ",") + " -mig 0",
	}
}

// grantable are the GPUs that Kerf can give away, whole or in parts.
func (d Driver) grantable() (out []sharing.GPU) {
	for _, g := range d.GPUs {
		if !g.MIG && (g.Health == sharing.HealthOK || g.Health == sharing.HealthUnknown) {
			out = append(out, g)
		}
	}
	return out
}
