// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/caps/mps"
	"github.com/kerf-gpu/kerf/sharing/node"
)

// A process gets an environment alone; a container also the pipe directory at the path that the environment names, and
// its daemon's /dev/shm.
func TestWhatAClientOfMPSGets(t *testing.T) {
	sup, err := mps.New(mps.Options{Dir: "/run/kerf/mps"})
	if err != nil {
		t.Fatal(err)
	}
	m := &mpsDaemons{sup: sup}
	l := node.MPSLease{ID: "k-1", GPU: "GPU-01234567-89ab-cdef-0123-456789abcdef", Domain: "namespace/a", Memory: 4 * sharing.GiB, Percent: 25}
	process, err := m.Client(l)
	if err != nil || len(process.Mounts) > 0 {
		t.Fatalf("%+v, %v", process, err)
	}
	l.Contained = true
	container, err := m.Client(l)
	if err != nil {
		t.Fatal(err)
	}
	pipe := container.Env["CUDA_MPS_PIPE_DIRECTORY"]
	want := map[string]string{"CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}
	if d := cmp.Diff(want, container.Env); d != "" || !strings.HasSuffix(pipe, "/v/pipe") || pipe == process.Env["CUDA_MPS_PIPE_DIRECTORY"] {
		t.Errorf("environment (-want +got):\n%s", d)
	}
	mounts := []sharing.Mount{{Source: pipe, Target: pipe, ReadOnly: true}, {Source: strings.TrimSuffix(pipe, "pipe") + "shm", Target: "/dev/shm"}}
	if d := cmp.Diff(mounts, container.Mounts); d != "" {
		t.Error(d)
	}
	l.Memory = 1
	if _, err := m.Client(l); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("without memory: %v", err)
	}
}
