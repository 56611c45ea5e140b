// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"strings"
	"testing"
)

// Of the node's own container runtime kerf doctor tells what Kerf needs of it, and kubelet's version of the same.
func TestDoctorAsksTheRuntime(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	r := e.kerf("doctor", "--run-dir", "/run/kerf", "-o", "json")
	var told struct {
		Checks []struct {
			Name, Status, Found, Fix string
		}
	}
	if err := json.Unmarshal([]byte(r.out), &told); err != nil {
		t.Fatalf("%v: %v", err, r)
	}
	node, err := e.nodeObject()
	if err != nil {
		t.Fatal(err)
	}
	runtime := strings.Replace(node.Status.NodeInfo.ContainerRuntimeVersion, "://", " ", 1) // "containerd 2.4.2"
	want := map[string]string{
		"container runtime": runtime, "NRI": "on", "runtime's CDI": "/etc/cdi", "cgroup driver": "cgroupfs",
		"default runtime": "runc",
	}
	for _, c := range told.Checks {
		seen, asked := want[c.Name]
		if !asked {
			continue
		}
		delete(want, c.Name)
		if c.Status != "ok" || !strings.Contains(c.Found, seen) || c.Fix != "" {
			t.Errorf("%s: %+v, want it ok with %q", c.Name, c, seen)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v in %s", want, r.out)
	}
}
