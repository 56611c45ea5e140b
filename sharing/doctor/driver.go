// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

const fixDriver = "install the NVIDIA driver and load it (modprobe nvidia); nvidia-smi must answer"

func (f Facts) library() Check {
	c := Check{Name: checkLibrary, Found: f.Driver.Library}
	if f.Driver.Library != "" {
		c.Status, c.Effect = OK, "the driver answers"
		return c
	}
	c.Found = f.Driver.Problem
	if c.Found == "" {
		c.Found = "no libnvidia-ml.so.1"
	}
	if f.Agent.Answered && f.Agent.DriverVersion != "" {
		c.Status, c.Effect = Warn,
			"the agent has a driver that this command does not see; the checks of the driver are not possible"
		c.Fix = "run kerf doctor with the agent's LD_LIBRARY_PATH"
		return c
	}
	c.Status, c.Effect, c.Fix = Missing, "no grant is possible", fixDriver
	return c
}

// blind is a check that only the driver can answer.
func blind(name string) Check {
	return Check{Name: name, Status: Unknown, Found: "the driver did not answer", Effect: "see " + checkLibrary,
		Cause: checkLibrary}
}

func (f Facts) driverVersion() Check {
	const name = "driver version"
	switch {
	case f.Driver.Version != "":
		return Check{Name: name, Status: OK, Found: f.Driver.Version, Effect: "the driver answers"}
	case f.Agent.DriverVersion != "":
		return Check{Name: name, Status: OK, Found: f.Agent.DriverVersion + " (from the agent)",
			Effect: "the driver answers the agent"}
	}
	return blind(name)
}

func (f Facts) memoryLimits() Check {
	const name = checkLimits
	switch {
	case f.Driver.Library == "":
		return blind(name)
	case f.Driver.MemoryLimits:
		return Check{Name: name, Status: OK, Found: "the library has nvmlDeviceSetMemoryLimits_v1",
			Effect: "the driver can enforce memory caps"}
	}
	return Check{
		Name: name, Status: Missing, Found: "the library has no nvmlDeviceSetMemoryLimits_v1",
		Effect: "no shares at level driver; whole GPUs are possible", Fix: "install driver r615 or newer",
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
	c := Check{Name: name, Found: strings.Join(f.Driver.Devices, ", "), Fix: fixDevices}
	switch {
	case gpus > 0 && control:
		c.Status, c.Effect, c.Fix = OK, "programs can open the GPUs", ""
	case gpus > 0 || control:
		c.Status, c.Effect = Missing, "device files are missing: programs cannot use the GPUs"
	case f.Agent.Answered && f.Agent.DriverVersion != "":
		c.Status, c.Found, c.Effect, c.Fix = Unknown, "none in /dev",
			"the agent has a driver; its device files may be elsewhere (kerf-agent --dev-root)", ""
	default:
		c.Status, c.Found, c.Effect = Missing, "none in /dev", "programs cannot use a GPU"
		if f.Driver.Library == "" {
			c.Fix, c.Cause = "", checkLibrary
		}
	}
	return c
}

func (f Facts) gpus() Check {
	const name = checkGPUs
	if f.Driver.Library == "" {
		return blind(name)
	}
	if f.Driver.GPUProblem != "" {
		return Check{Name: name, Status: Unknown, Found: f.Driver.GPUProblem,
			Effect: "unknown which grants are possible", Fix: "run nvidia-smi; look for NVRM and Xid in dmesg"}
	}
	seen := kinds(f.Driver.GPUs)
	c := Check{Name: name, Status: OK, Found: strings.Join(seen, "; "), Effect: "allocatable memory"}
	switch {
	case len(f.Driver.GPUs) == 0:
		c.Status, c.Effect = Missing, "no grant is possible"
		c.Found = "the driver has no usable GPU"
		c.Fix = "run nvidia-smi and lspci -d 10de:; look for NVRM and Xid in dmesg"
	case len(f.Driver.LeftOut) > 0:
		c.Status, c.Effect, c.Fix = Warn, "some GPUs are not usable", "look for NVRM and Xid in dmesg"
	}
	if len(f.Driver.LeftOut) > 0 {
		c.Found += "; left out: " + strings.Join(f.Driver.LeftOut, "; ")
	}
	return c
}

// kinds counts GPUs of the same model and size, in the order in which they come.
func kinds(gpus []sharing.GPU) []string {
	count := map[string]int{}
	var order []string
	for _, g := range gpus {
		kind := fmt.Sprintf("%s with %s", g.Model, g.Usable())
		if g.SystemMemory {
			kind = g.Model + " with unknown memory (the system's): whole GPUs only"
		}
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
	if f.Driver.Library == "" {
		return blind(name)
	}
	if f.Driver.GPUProblem != "" {
		return Check{Name: name, Status: Unknown, Found: "the driver did not list its GPUs", Effect: "see " + checkGPUs,
			Cause: checkGPUs}
	}
	var on []string
	for _, g := range f.Driver.GPUs {
		if g.MIG {
			on = append(on, fmt.Sprint(g.Index))
		}
	}
	if len(on) == 0 {
		return Check{Name: name, Status: OK, Found: "off", Effect: "shares and whole GPUs are possible"}
	}
	return Check{
		Name: name, Status: Warn, Found: "on for GPU " + strings.Join(on, ", "),
		Effect: "these GPUs give MIG instances only, no shares and no whole GPUs",
		Fix: "none if you want that; else set migEnabled: false in the pool's field migLayouts, or run nvidia-smi -i " +
			strings.Join(on, ",") + " -mig 0",
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
