// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/filelock"
	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/internal/mps"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/record"
	"github.com/kerf-gpu/kerf/sharing/node/settings/gpumode"
)

func TestInUse(t *testing.T) {
	runs := func(dir string, inode uint64) bool { return dir == "/g/runs" && inode == 1 }
	rec := record.Record{BootID: "now", Grants: []record.Grant{
		{ID: "k-1", Namespace: "a", PodName: "runs", Cgroup: "/g/runs", Inode: 1},
		{ID: "k-2", Namespace: "a", PodName: "runs", Cgroup: "/g/runs", Inode: 1},
		{ID: "k-3", Cgroup: "/g/runs", Inode: 1},
		{ID: "k-4", Namespace: "a", PodName: "reused", Cgroup: "/g/runs", Inode: 2},
		{ID: "k-5", Namespace: "a", PodName: "ended", Cgroup: "/g/gone", Inode: 1},
		{ID: "k-6", Namespace: "a", PodName: "waits"},
	}}
	if got := inUse(rec, "now", runs); !slices.Equal(got, []string{"grant k-3", "pod a/runs"}) {
		t.Errorf("%q", got)
	}
	if got := inUse(rec, "later", runs); got != nil {
		t.Errorf("of another boot: %q", got)
	}
}

// What is Kerf's goes, what is of others stays, and a second time finds nothing to do.
func TestRemoveFiles(t *testing.T) {
	root := t.TempDir()
	r := Removal{Log: slog.New(slog.DiscardHandler), Dir: filepath.Join(root, "run"),
		CDIDir: filepath.Join(root, "cdi"), HookDir: filepath.Join(root, "opt"),
		KubeletDir: filepath.Join(root, "kubelet"), AuditDir: filepath.Join(root, "audit")}
	ours := []string{"run/record.json", "run/locks/gpu", "cdi/kerf.dev-ask.json", "opt/v1/kerf-hook",
		"kubelet/device-plugins/kerf-gpu-1.sock", "audit/1.jsonl"}
	theirs := []string{"cdi/nvidia.json", "kubelet/device-plugins/kubelet.sock",
		"kubelet/device-plugins/nvidia-gpu.sock"}
	for _, name := range append(slices.Clone(ours), theirs...) {
		name = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := r.files(); err != nil {
			t.Fatal(err)
		}
		var left []string
		err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				name, err = filepath.Rel(root, name)
				left = append(left, name)
			}
			return err
		})
		if err != nil || !slices.Equal(left, theirs) {
			t.Fatalf("left are %q (%v), want %q", left, err, theirs)
		}
	}
	if _, err := os.Stat(r.HookDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of hooks is there: %v", err)
	}
}

// While an agent runs, or its record cannot be read, nothing is touched.
func TestRemoveWaits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := Removal{Log: slog.New(slog.DiscardHandler), Dir: t.TempDir()}
	l, err := filelock.Take(t.Context(), filepath.Join(r.Dir, "agent.lock"), "it", r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.run(ctx); !errors.Is(err, sharing.ErrConflict) {
		t.Errorf("with an agent: %v", err)
	}
	l.Release()
	name := filepath.Join(r.Dir, "record.json")
	if err := os.WriteFile(name, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.unused(ctx, cgroup.Hierarchy{}); err == nil {
		t.Error("a record that cannot be read was passed over")
	}
	boot, err := process.BootID()
	if err != nil {
		t.Fatal(err)
	}
	text, err := record.Encode(record.Record{BootID: boot,
		Grants: []record.Grant{{ID: "k-1", Cgroup: filepath.Join(t.TempDir(), "gone"), Inode: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.unused(ctx, cgroup.Hierarchy{}); err != nil {
		t.Errorf("what has ended was waited for: %v", err)
	}
}

// What GPUs had before is put back first: without a driver that can do it nothing is removed, unless it is to be left.
func TestRemovePutsBackSettings(t *testing.T) {
	boot, err := process.BootID()
	if err != nil {
		t.Fatal(err)
	}
	r := Removal{Log: slog.New(slog.DiscardHandler), Dir: t.TempDir(),
		Libraries: []string{filepath.Join(t.TempDir(), "libnvidia-ml.so.1")}}
	if err := r.restored(t.Context()); err != nil {
		t.Errorf("nothing to put back: %v", err)
	}
	name := filepath.Join(r.Dir, gpumode.File)
	text := `{"schema":1,"boot":"` + boot + `","gpus":{"GPU-a":{"powerLimit":{"before":"70000","ours":["50000"]}}}}`
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.run(t.Context()); err == nil || !strings.Contains(err.Error(), "--leave-gpu-settings") {
		t.Errorf("without a driver: %v", err)
	}
	if _, err := os.Stat(name); err != nil {
		t.Errorf("what was there before is forgotten: %v", err)
	}
	r.LeaveSettings = true
	if err := r.restored(t.Context()); err != nil {
		t.Errorf("left as it is: %v", err)
	}
}

// What agents have mounted goes, too: a killed one leaves it.
func TestRemoveUnmounts(t *testing.T) {
	if !mountns.Allowed() {
		t.Skip("mounting needs CAP_SYS_ADMIN")
	}
	r := Removal{Log: slog.New(slog.DiscardHandler), Dir: filepath.Join(t.TempDir(), "run")}
	t.Cleanup(func() { _ = r.unmount() })
	folder := libkerf.Folder{Preload: "/l",
		Devices: []libkerf.Device{{GPU: sharing.GPURef{UUID: "GPU-00000000-0000-0000-0000-000000000001"}, Limit: 1}}}
	region, err := folder.Make(filepath.Join(r.Dir, "client", "k-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	pods, user := filepath.Join(r.Dir, "mps", "gpu", "pods", "v"), filepath.Join(r.Dir, "mps", "gpu", "user")
	outer, volume := mountns.Volume{Size: sharing.MiB, Inodes: 2, Owner: 1000},
		mountns.Volume{Size: sharing.MiB, Inodes: 2}
	for _, mount := range []func() error{
		func() error { return errors.Join(os.MkdirAll(pods, 0o755), mps.MountVolume(pods)) },
		func() error { return errors.Join(os.MkdirAll(user, 0o755), outer.Mount(user)) },
		func() error { return errors.Join(os.Mkdir(user+"/v", 0o755), volume.Mount(user+"/v")) },
	} {
		if err := mount(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := r.files(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(r.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the agent's directory is there: %v", err)
	}
}
