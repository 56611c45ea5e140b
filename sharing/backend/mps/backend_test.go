// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

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
	"github.com/kerf-gpu/kerf/sharing/backend"
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
	sup, err := New(Options{Dir: filepath.Join(dir, "mps"), Modes: noModes{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	b := NewBackend(sup, slog.New(slog.DiscardHandler))
	share := sharing.Share{GPU: sharing.GPURef{UUID: "GPU-01234567-89ab-cdef-0123-456789abcdef"},
		Memory: 4 * sharing.GiB, Percent: 25}
	g := backend.Grant{ID: "k-1", Domain: "user/a", Placement: sharing.Placement{share}}
	if _, err := b.Injection(g, nil); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("of a daemon without attachments: %v", err)
	}
	process := joined(t, b, g)
	if len(process.Mounts) > 0 {
		t.Errorf("mounts of a process: %+v", process.Mounts)
	}
	g.Domain, g.Pod = "namespace/a", true
	container := joined(t, b, g)
	pipe := container.Env["CUDA_MPS_PIPE_DIRECTORY"]
	want := map[string]string{"CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}
	if d := cmp.Diff(want, container.Env); d != "" || pipe == process.Env["CUDA_MPS_PIPE_DIRECTORY"] {
		t.Errorf("environment (-want +got):\n%s", d)
	}
	volume := filepath.Join(filepath.Dir(pipe), "v")
	mounts := []sharing.Mount{{Source: filepath.Join(volume, "pipe"), Target: pipe, ReadOnly: true},
		{Source: filepath.Join(volume, "shm"), Target: "/dev/shm"}}
	if d := cmp.Diff(mounts, container.Mounts); d != "" {
		t.Error(d)
	}
	for _, mount := range mounts {
		if info, err := os.Stat(mount.Source); err != nil || !info.IsDir() {
			t.Errorf("source %q: %v", mount.Source, err)
		}
	}
	if _, err := b.Injection(g, sharing.Placement{{GPU: share.GPU, Memory: 1}}); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("without memory: %v", err)
	}
}

// joined is what programs of a grant get that has joined its daemon until the test ends.
func joined(t *testing.T, b *Backend, g backend.Grant) backend.Injection {
	t.Helper()
	key, terms := Of(g, nil)
	if err := b.daemons.AddUser(t.Context(), key, g.ID, terms); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Recover(g)
		b.Release(backend.Grant{ID: g.ID}) // of the others nothing is known when a grant has ended
		b.Clean(context.Background())
		if _, err := b.Injection(g, nil); !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("after it has left: %v", err)
		}
	})
	in, err := b.Injection(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// noModes is a driver without compute modes.
type noModes struct{}

func (noModes) ComputeMode(context.Context, sharing.GPUID) (sharing.ComputeMode, error) {
	return sharing.ComputeModeAsIs, sharing.ErrUnsupported
}

func (noModes) SetComputeMode(context.Context, sharing.GPUID, sharing.ComputeMode) error {
	return sharing.ErrUnsupported
}
