// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"

	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/entry"
	"github.com/kerf-gpu/kerf/sharing/node/gpudriver"
)

// enter moves the reserving process into its group.
func (r *Activator) enter(ctx context.Context, c ledger.Reservation, owner *process.Handle, att gpudriver.Attached,
	group cgroup.Group) error {
	check := entryCheck{
		gpus: r.answering(att.GPUs), driver: att.Driver, roots: []string{r.DevRoot, cmp.Or(r.CapsRoot, r.DevRoot)},
		caps: att.Caps, capped: r.caps.cappable(c.Placement), dir: group.Dir, log: r.Log,
	}
	return entry.Entry{
		Groups: r.Cgroups, Group: group, Process: owner, Check: check.run, Log: r.Log,
		After: func(step string) error { return r.Failpoints.Eval(activatePoint(step)) },
	}.Run(ctx)
}

// activatePoint is the failpoint after a step of an entry.
func activatePoint(step string) string { return "arm-after-" + step }

// answering are the GPUs of which an answer can be expected.
func (r *Activator) answering(gpus []sharing.GPU) []sharing.GPU {
	return slices.DeleteFunc(slices.Clone(gpus), func(g sharing.GPU) bool {
		h := r.caps.healthOf(g.Ref())
		return h == sharing.HealthLost || h == sharing.HealthSuspect
	})
}

// recoverEntries returns the processes that are frozen because an agent ended while it moved them. It runs first,
// because only the agent can thaw them. If it fails for one group, the agent continues with its other work.
func (r *Finder) recoverEntries() {
	names, err := r.Cgroups.Children(r.Parent)
	if err != nil {
		if !errors.Is(err, sharing.ErrNotFound) {
			r.Log.Error("failed to list cgroups of grants", "cgroup", r.Parent, "error", err.Error())
		}
		return
	}
	for _, name := range names {
		group, err := r.Cgroups.Open(filepath.Join(r.Cgroups.Mount, r.Parent, name), 0)
		undone := false
		if err == nil {
			undone, err = entry.Recover(r.Cgroups, group, r.Log)
		}
		switch {
		case err != nil:
			r.Log.Error("failed to recover an unfinished activation", "cgroup", name, "error", err.Error())
		case undone:
			r.Log.Warn("undid an unfinished activation; its process runs where it came from", "cgroup", name)
		}
	}
}

// entryCheck decides about processes that stand still in a grant's cgroup, see package entry.
type entryCheck struct {
	gpus   []sharing.GPU
	driver gpudriver.Reader
	// roots are the folders in which the node's device files are.
	roots []string
	// caps is nil where the driver caps nothing; capped has what it caps for the cgroup dir.
	caps   gpudriver.Capper
	capped sharing.Placement
	dir    string
	log    *slog.Logger
}

func (c entryCheck) run(ctx context.Context, pids []int) error {
	files, err := entry.DeviceFiles(c.roots...)
	if err != nil {
		return err
	}
	found, err := entry.Find(ctx, pids, files, c.listed(ctx, pids))
	if err != nil {
		return err
	}
	if err := entry.Evaluate(found); err != nil {
		return err
	}
	return c.readBack(ctx)
}

// listed are the indexes of the GPUs on which the driver lists a process. A GPU that does not answer is left out: no
// process reaches it without a device file.
func (c entryCheck) listed(ctx context.Context, pids []int) map[int][]int {
	ctx, cancel := context.WithTimeout(ctx, sampleDeadline)
	defer cancel()
	var mu sync.Mutex
	on := map[int][]int{}
	var wg sync.WaitGroup
	for _, gpu := range c.gpus {
		wg.Go(func() {
			list, err := c.driver.Processes(ctx, gpu.Ref())
			if err != nil {
				c.log.Debug("failed to list processes of GPU", "gpu", gpu.Ref().String(), "error", err.Error())
			}
			mu.Lock()
			defer mu.Unlock()
			for _, use := range list {
				if slices.Contains(pids, use.PID) && !slices.Contains(on[use.PID], gpu.Index) {
					on[use.PID] = append(on[use.PID], gpu.Index)
				}
			}
		})
	}
	wg.Wait()
	for _, indexes := range on {
		slices.Sort(indexes)
	}
	return on
}

// readBack checks that the caps that were set on the empty cgroup hold for the processes that are in it now.
func (c entryCheck) readBack(ctx context.Context) error {
	if c.caps == nil {
		return nil
	}
	for _, f := range c.capped {
		limit, _, err := c.caps.Read(ctx, c.dir, f.GPU)
		if err != nil {
			return fmt.Errorf("read cap of GPU %s back: %w", f.GPU, err)
		}
		if limit > f.Memory || f.Memory-limit > capSlack {
			return fmt.Errorf("read cap of GPU %s back: it is %s, and %s was set: %w", f.GPU, limit, f.Memory,
				sharing.ErrUnavailable)
		}
	}
	return nil
}
