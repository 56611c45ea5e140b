// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// What a process has open is found: through its descriptors, also inherited ones.
func TestFind(t *testing.T) {
	b := newBench(t)
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "dev/nvidia-caps"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nvidia0", "nvidia17", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1",
		"nvidia-fs0", "null"} {
		if err := os.WriteFile(filepath.Join(root, "dev", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := DeviceFiles(root, root, t.TempDir())
	if err != nil || len(files) != 5 {
		t.Fatalf("device files %v, %v", files, err)
	}
	for name, held := range map[string]bool{"nvidia17": true, "nvidiactl": true, "nvidia-caps/nvidia-cap1": true,
		"null": false} {
		f, err := os.OpenFile(filepath.Join(root, "dev", name), unix.O_PATH, 0) // as a library opens a socket
		if err != nil {
			t.Fatal(err)
		}
		c := b.child(f)
		_ = f.Close()
		found, err := Find(t.Context(), []int{c.PID()}, files, map[int][]int{c.PID(): {3}})
		if err != nil || len(found) != 1 || (len(found[0].Files) == 1) != held || found[0].GPUs[0] != 3 {
			t.Errorf("%s: found %+v, %v", name, found, err)
		}
		if err := Evaluate(found); !errors.Is(err, sharing.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Find(t.Context(), []int{1 << 30}, files, nil); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("no process: %v", err)
	}
}
