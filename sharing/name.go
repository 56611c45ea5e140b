// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package sharing is the model that every part of Kerf speaks: units, GPUs, requests, shares, placements, enforcement
// levels and the error vocabulary.
//
// It promises to be pure: no I/O, no clock, no goroutine, no package state. All capacity arithmetic is
// checked; nothing wraps.
//
// It does not decide anything: sharing/ledger has the grants, sharing/allocator chooses the GPU for a request, and
// sharing/backend enforces caps.
package sharing

import "strings"

// maxName is the longest name of a grant, pool or profile, in bytes: that of a DNS label.
const maxName = 63

// ValidateName rejects what cannot name a grant, a pool or a profile. A name is 1 to 63 of a-z 0-9 . - and begins and
// ends with a letter or a digit. The error is a *FieldError for field.
func ValidateName(field, s string) error {
	const remedy = "write 1 to 63 of a-z 0-9 . -, with a letter or a digit at both ends"
	alnum := func(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	switch {
	case s == "":
		return Invalid(field, s, remedy, "is empty")
	case len(s) > maxName:
		return Invalid(field, s, remedy, "is longer than %d characters", maxName)
	case !alnum(s[0]) || !alnum(s[len(s)-1]):
		return Invalid(field, s, remedy, "does not begin and end with a letter or a digit")
	}
	for i := range len(s) {
		if c := s[i]; !alnum(c) && c != '.' && c != '-' {
			return Invalid(field, s, remedy, "has a character that names do not have")
		}
	}
	return nil
}

// ParseGPUID reads a GPU's UUID as nvidia-smi -L prints it and returns it in lower case. A MIG instance's UUID is
// refused: it changes when the instance is created again. field names the input for the error, a *FieldError.
func ParseGPUID(field, s string) (GPUID, error) {
	const remedy = "write a UUID as nvidia-smi -L shows it, such as GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"
	if strings.HasPrefix(s, "MIG-") {
		return "", Invalid(field, s, remedy, "names a MIG instance, which is no lasting identity")
	}
	hex, ok := strings.CutPrefix(s, "GPU-")
	if !ok || !isUUID(hex) {
		return "", Invalid(field, s, remedy, "is not a GPU's UUID")
	}
	return GPUID("GPU-" + strings.ToLower(hex)), nil
}

// isUUID reports whether s is 8-4-4-4-12 hexadecimal digits.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
			continue
		}
		if ('0' > c || c > '9') && ('a' > c || c > 'f') && ('A' > c || c > 'F') {
			return false
		}
	}
	return true
}

// Labels that people and the chart set. Those that the chart's policies alone read are here for the reference.
const (
	// LabelNode, with the value true, makes the DaemonSets run the agent on a node. An administrator sets it.
	LabelNode = Domain + "/deploy-agent"
	// LabelTranslate, with the value true on a namespace, translates its pods' requests from other tools to those of
	// Kerf.
	LabelTranslate = Domain + "/translate"
	// LabelScheduler, of a namespace and with the value false, keeps the schedulerName of its pods.
	LabelScheduler = Domain + "/set-scheduler"
	// LabelHostPaths, of a namespace and with the value true, lets its pods mount paths that give access to GPUs.
	LabelHostPaths = Domain + "/allow-host-paths"
	// LabelPrivileged, of a namespace and with the value true, lets its pods with a GPU have privileged containers.
	LabelPrivileged = Domain + "/allow-privileged"
	// LabelDefrag of a namespace allows Kerf to move its pods so that pending pods fit: "true".
	LabelDefrag = Domain + "/defrag"
	// LabelDaemonSet is the chart's pool that a pod of an agent belongs to. The chart sets it.
	LabelDaemonSet = Domain + "/agent-pool"
)

// Labels that an agent gives its node with --node-labels.
const (
	// LabelModel is the product's name with - for spaces, or mixed where the GPUs differ.
	LabelModel = Domain + "/gpu-model"
	// LabelMemory is the memory of the smallest GPU, in GiB, or "unknown".
	LabelMemory = Domain + "/gpu-memory-gib"
	// LabelDriver is the driver's version.
	LabelDriver = Domain + "/driver-version"
	// LabelLevel is the strongest enforcement level that a share of every GPU can have.
	LabelLevel = Domain + "/enforcement-level"
	// LabelMIGCapable is true if a GPU supports MIG.
	LabelMIGCapable = Domain + "/mig-capable"
)

// NVIDIALimitEnv are the container variables from which NVIDIA's hook apply-cuda-memory-limits (Container Toolkit
// 1.20.1) takes a GPU memory limit, in MiB. The tenant writes them, so they must not reach that hook if the container
// has a grant.
func NVIDIALimitEnv() []string {
	return []string{"NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_REQUEST"}
}
