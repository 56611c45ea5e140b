// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"strings"
	"testing"
)

const (
	mib = uint64(1) << 20
	gib = uint64(1) << 30
)

// The driver's own truth, as gpusim prints it.
type (
	simGPU struct {
		Index    int    `json:"index"`
		Minor    int    `json:"minor"`
		UUID     string `json:"uuid"`
		Memory   uint64 `json:"memory_bytes"`
		Reserved uint64 `json:"reserved_bytes"`
		Used     uint64 `json:"used_bytes"`
		Lost     bool   `json:"lost"`
	}
	simProcess struct {
		PID    int    `json:"pid"` // as the node numbers it
		Cgroup string `json:"cgroup"`
		GPU    string `json:"gpu"`
		Bytes  uint64 `json:"bytes"`
	}
	simLimit struct {
		Cgroup string  `json:"cgroup"`
		GPU    string  `json:"gpu"`
		Soft   uint64  `json:"soft_bytes"`
		Hard   *uint64 `json:"hard_bytes"` // null: none
		Used   uint64  `json:"used_bytes"`
	}
)

func (n *node) gpusim(t *testing.T, args ...string) string {
	t.Helper()
	args = append([]string{n.program("gpusim"), args[0], "--dir", n.env["GPUSIM_DIR"]}, args[1:]...)
	r := n.in(args...)
	if r.err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), r)
	}
	return r.out
}

func (n *node) gpus(t *testing.T) []simGPU {
	t.Helper()
	return decode[[]simGPU](t, n.gpusim(t, "gpus", "-o", "json"))
}

func (n *node) processes(t *testing.T) []simProcess {
	t.Helper()
	return decode[[]simProcess](t, n.gpusim(t, "processes", "-o", "json"))
}

func (n *node) limits(t *testing.T) []simLimit {
	t.Helper()
	return decode[[]simLimit](t, n.gpusim(t, "limits", "-o", "json"))
}

// set injects a fault, as "gpu=2 lost=true" does.
func (n *node) set(t *testing.T, words string) {
	t.Helper()
	n.gpusim(t, append([]string{"set"}, strings.Fields(words)...)...)
}

// capsOf are the hard limits that the driver holds for a container's cgroup, by GPU.
func (n *node) capsOf(t *testing.T, containerID string) map[string]uint64 {
	t.Helper()
	caps := map[string]uint64{}
	for _, l := range n.limits(t) {
		if strings.Contains(l.Cgroup, containerID) && l.Hard != nil {
			caps[l.GPU] = *l.Hard
		}
	}
	return caps
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}
