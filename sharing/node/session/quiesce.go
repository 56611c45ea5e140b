// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/kerf-gpu/kerf/internal/quiesce"
	"github.com/kerf-gpu/kerf/mig/exec"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// quietDir, under the agent's directory, is where others are asked to let go of a GPU.
	quietDir = "quiet"
	// quietPatience is how long they are waited for. One that does not answer must not keep pods from their instances:
	// the driver itself refuses what it takes for in use.
	quietPatience = 5 * time.Second
)

func others(dir string) quiesce.Dir { return quiesce.Dir(filepath.Join(dir, quietDir)) }

// quiescer lets go of a GPU what Kerf's own processes hold of it.
type quiescer struct {
	gate *gate
	// events frees this process's registration for faults.
	events func(ctx context.Context) (resume func(), err error)
	others quiesce.Dir
	log    *slog.Logger
}

// letGo is exec.Options.Quiesce. To create an instance, this process's calls must wait; open handles of the GPU or of
// other instances do not matter. For a reset, no other process may have the driver's library open. This process keeps
// it, because it makes the call.
func (q *quiescer) letGo(ctx context.Context, gpu sharing.GPUID, what exec.Touch) (resume func(), err error) {
	open, err := q.gate.close(ctx, gpu)
	if err != nil || what == exec.Makes {
		return open, err
	}
	ctx, cancel := context.WithTimeout(ctx, quietPatience)
	defer cancel()
	undo := []func(){open}
	asks := map[string]func() (func(), error){
		"the registration for faults": func() (func(), error) { return q.events(ctx) },
		"kerf-monitor":                func() (func(), error) { return q.others.Quiesce(ctx, gpu) },
	}
	if what == exec.Resets {
		asks["the driver's library in kerf-monitor"] = func() (func(),
			error) {
			return q.others.Quiesce(ctx, quiesce.Library)
		}
	}
	for what, ask := range asks {
		back, err := ask()
		if err != nil {
			q.log.Warn("failed to release GPU before a MIG change", "what", what, "gpu", string(gpu), "error",
				err.Error())
			continue
		}
		undo = append(undo, back)
	}
	return func() {
		for _, f := range undo {
			f()
		}
	}, nil
}
