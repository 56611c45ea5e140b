// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
)

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
