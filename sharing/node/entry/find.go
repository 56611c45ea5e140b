// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
)

// DeviceFile is a file through which a process reaches the driver.
type DeviceFile struct {
	Path string
	Is   process.DeviceFile
}

// DeviceFiles are the NVIDIA driver's device files below each root's folder dev. They are those of all GPUs, of the
// control and the unified memory device, and of MIG capabilities. A root without any has none.
func DeviceFiles(roots ...string) ([]DeviceFile, error) {
	var files []DeviceFile
	for _, root := range roots {
		dev := filepath.Join(root, "dev")
		for _, pattern := range []string{"nvidia[0-9]*", "nvidiactl", "nvidia-uvm*", "nvidia-caps/*"} {
			names, err := fs.Glob(os.DirFS(dev), pattern)
			if err != nil {
				return nil, fmt.Errorf("list device files: %w (%w)", err, sharing.ErrInvalid)
			}
			for _, name := range names {
				path := filepath.Join(dev, name)
				is, err := process.DeviceFileAt(path)
				switch {
				case errors.Is(err, sharing.ErrNotFound): // removed just now
				case err != nil:
					return nil, err
				case !slices.ContainsFunc(files, func(f DeviceFile) bool { return f.Is == is }):
					files = append(files, DeviceFile{path, is})
				}
			}
		}
	}
	return files, nil
}

// Find looks at processes that stand still.
//
// It sees device files that they have open, as a descriptor or a mapping, whichever process opened them. It sees the
// pids that the driver lists. It sees processes outside of the group that act on the same memory or descriptors, which
// no cgroup holds together.
//
// It does not see a descriptor that is on its way to a process through a socket. Nothing is gained by that: a helper
// that runs outside of the group can send a descriptor at any later time. What the helper took from the GPU is in the
// driver's list under the helper's pid, which is in no grant.
func Find(ctx context.Context, pids []int, files []DeviceFile, listed map[int][]int) ([]Found, error) {
	outside, err := lastingSharers(ctx, pids)
	if err != nil {
		return nil, err
	}
	all := make([]process.DeviceFile, len(files))
	for i, f := range files {
		all[i] = f.Is
	}
	var out []Found
	for _, pid := range pids {
		open, err := process.OpenDevices(pid, all)
		if err != nil {
			return nil, err
		}
		found := Found{PID: pid, Outside: outside, GPUs: listed[pid]}
		for i, f := range files {
			if open[i] {
				found.Files = append(found.Files, f.Path)
			}
		}
		out = append(out, found)
	}
	return out, nil
}

const (
	// shareTime is how long a process that shares memory may take to execute its program: a vfork child shares its
	// parent's memory until then.
	shareTime  = time.Second
	sharePause = 2 * time.Millisecond
)

// lastingSharers are the sharers that do not go away by themselves.
func lastingSharers(ctx context.Context, pids []int) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, shareTime)
	defer cancel()
	for {
		sharers, err := process.SharingProcesses(pids)
		if err != nil || len(sharers) == 0 {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return sharers, nil
		case <-time.After(sharePause):
		}
	}
}
