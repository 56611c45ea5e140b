// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
)

// UsageFile is libkerf without an agent: programs share a cap that the step set. Contexts are not counted.
type UsageFile struct {
	dir    string
	region *libkerf.UsageFile
}

// NewUsageFile makes a region with a cap on the machine's GPU. It needs no rights.
func (b *Bench) NewUsageFile(limit uint64) (*UsageFile, error) {
	dir, err := b.folder("r")
	if err != nil {
		return nil, err
	}
	library, err := os.ReadFile(b.Program(libkerf.LibraryFile))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, libkerf.LibraryFile), library, 0o755); err != nil {
		return nil, err
	}
	if err := libkerf.MakePreload(dir); err != nil {
		return nil, err
	}
	gpu := sharing.GPURef{UUID: sharing.GPUID(b.Machine.UUID)}
	region, err := libkerf.Create(dir, []libkerf.Device{{GPU: gpu, Limit: sharing.Bytes(limit)}})
	if err != nil {
		return nil, fmt.Errorf("make region: %w", err)
	}
	return &UsageFile{dir: dir, region: region}, nil
}

// Way starts programs with libkerf. What programs counted that have ended counts no longer; in a grant, the agent sees
// to that.
func (r *UsageFile) Way(b *Bench) Way {
	graves, err := r.region.Dead(gone)
	if err == nil {
		_, _ = r.region.Bury(graves)
	}
	return b.Native().With("libkerf", "LD_PRELOAD="+libkerf.PreloadPath(r.dir))
}

// gone finds the processes that have ended.
func gone(slots []libkerf.Process) (map[libkerf.Process]bool, error) {
	out := map[libkerf.Process]bool{}
	for _, p := range slots {
		out[p] = unix.Kill(p.PID, 0) == unix.ESRCH
	}
	return out, nil
}

// Close unmaps the region.
func (r *UsageFile) Close() { _ = r.region.Close() }
