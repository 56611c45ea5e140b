// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// The variables that a task gets.
const (
	// EnvGPU is the value for kerf run --gpu-uuid.
	EnvGPU = "KERF_NOMAD_GPU"
	// EnvMemory is the value for kerf run --memory.
	EnvMemory = "KERF_NOMAD_MEMORY"
)

// separator is between the UUID of the GPU and the number of the GiB in a device ID.
const separator = ":"

// IDs returns the device IDs of the GPU: one for each GiB, and one if it gives no shares.
func (g GPU) IDs() []string {
	out := make([]string, max(g.GiB, 1))
	for i := range out {
		out[i] = g.UUID + separator + strconv.Itoa(i)
	}
	return out
}

// Request is the share of one task.
type Request struct {
	// GPU is the UUID.
	GPU string
	// GiB is the memory of the share.
	GiB int
}

// Env returns the variables of the task.
func (r Request) Env() map[string]string {
	return map[string]string{EnvGPU: r.GPU, EnvMemory: strconv.Itoa(r.GiB) + "GiB"}
}

// Reserve returns the share that the devices make up. It rejects unknown devices, devices of two GPUs, and one that
// is named twice. Its errors wrap sharing.ErrInvalid.
func (n Node) Reserve(ids []string) (Request, error) {
	if len(ids) == 0 {
		return Request{}, fmt.Errorf("reserve devices: no device is requested: %w", sharing.ErrInvalid)
	}
	r := Request{GiB: len(ids)}
	seen := map[string]bool{}
	for _, id := range ids {
		uuid, problem := n.gpuOf(id)
		switch {
		case problem == "" && seen[id]:
			problem = "the device is requested twice"
		case problem == "" && r.GPU != "" && r.GPU != uuid:
			problem = "a share has memory of one GPU, and another device is of " + r.GPU
		}
		if problem != "" {
			return Request{}, fmt.Errorf("reserve device %q: %s: %w", id, problem, sharing.ErrInvalid)
		}
		seen[id], r.GPU = true, uuid
	}
	return r, nil
}

// gpuOf returns the UUID of the GPU that has the device, or the reason why there is none.
func (n Node) gpuOf(id string) (uuid, problem string) {
	uuid, _, _ = strings.Cut(id, separator)
	for _, g := range n.GPUs {
		switch {
		case g.UUID != uuid:
		case slices.Contains(g.IDs()[:g.GiB], id):
			return uuid, ""
		default:
			return "", fmt.Sprintf("the GPU has %d GiB for shares", g.GiB)
		}
	}
	return "", fmt.Sprintf("the agent reported no GPU with UUID %q", uuid)
}
