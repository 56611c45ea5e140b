// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/mps"
	"github.com/kerf-gpu/kerf/sharing/node"
)

// A process gets an environment alone; a container also the pipe directory at the path that the environment names, and
// its daemon's /dev/shm.
func TestWhatAClientOfMPSGets(t *testing.T) {
	if !mountns.Allowed() {
		t.Skip("mounting needs CAP_SYS_ADMIN")
	}
	dir, err := os.MkdirTemp("", "kerf-mps") // the name of a test's own folder is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	sup, err := mps.New(mps.Options{Dir: filepath.Join(dir, "mps"), Modes: noModes{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m := &mpsDaemons{sup: sup}
	l := node.MPSLease{ID: "k-1", GPU: "GPU-01234567-89ab-cdef-0123-456789abcdef", Domain: "user/a", Memory: 4 * sharing.GiB, Percent: 25}
	if _, err := m.Client(l); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("of a daemon without leases: %v", err)
	}
	process := m.joined(t, l)
	if len(process.Mounts) > 0 {
		t.Errorf("mounts of a process: %+v", process.Mounts)
	}
	l.Domain, l.Contained = "namespace/a", true
	container := m.joined(t, l)
	pipe := container.Env["CUDA_MPS_PIPE_DIRECTORY"]
	want := map[string]string{"CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}
	if d := cmp.Diff(want, container.Env); d != "" || pipe == process.Env["CUDA_MPS_PIPE_DIRECTORY"] {
		t.Errorf("environment (-want +got):\n%s", d)
	}
	volume := filepath.Join(filepath.Dir(pipe), "v")
	mounts := []sharing.Mount{{Source: filepath.Join(volume, "pipe"), Target: pipe, ReadOnly: true}, {Source: filepath.Join(volume, "shm"), Target: "/dev/shm"}}
	if d := cmp.Diff(mounts, container.Mounts); d != "" {
		t.Error(d)
	}
	for _, mount := range mounts {
		if info, err := os.Stat(mount.Source); err != nil || !info.IsDir() {
			t.Errorf("source %q: %v", mount.Source, err)
		}
	}
	l.Memory = 1
	if _, err := m.Client(l); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("without memory: %v", err)
	}
}

// joined is what a client of a lease gets that has joined its daemon until the test ends.
func (m *mpsDaemons) joined(t *testing.T, l node.MPSLease) node.MPSClient {
	t.Helper()
	if err := m.Prepare(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Leave(context.Background(), l); err != nil {
			t.Error(err)
		}
	})
	client, err := m.Client(l)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// noModes is a driver without compute modes.
type noModes struct{}

func (noModes) ComputeMode(context.Context, sharing.GPUID) (sharing.ComputeMode, error) {
	return sharing.ComputeModeAsIs, sharing.ErrUnsupported
}

func (noModes) SetComputeMode(context.Context, sharing.GPUID, sharing.ComputeMode) error {
	return sharing.ErrUnsupported
}
