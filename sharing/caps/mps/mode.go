// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/kerf-gpu/kerf/sharing"
)

// gpu is one GPU that MPS has to do with. Its mutex is held over everything that is done to one of its daemons.
type gpu struct {
	mu      sync.Mutex
	id      sharing.GPUID
	domains map[string]*domain

	before    sharing.ComputeMode // valid while held
	held      bool                // the mode was written down and may have been changed
	exclusive bool
}

// setMode puts the mode in force that n domains ask for: one process alone for one, any for more, and what was found
// for none. It reads back what it sets.
func (g *gpu) setMode(ctx context.Context, opt *Options, n int) error {
	if n == 0 && !g.held {
		return nil
	}
	path := filepath.Join(opt.gpuPath(g.id), modeName)
	if !g.held {
		found, err := opt.Modes.ComputeMode(ctx, g.id)
		if errors.Is(err, sharing.ErrUnsupported) {
			return nil // then none is held, and State says so
		}
		if err != nil {
			return fmt.Errorf("read the compute mode of GPU %s: %w", g.id, err)
		}
		if found == sharing.ComputeModeProhibited {
			return fmt.Errorf("the compute mode of GPU %s forbids every program; allow them with nvidia-smi -c DEFAULT: %w", g.id, sharing.ErrUnavailable)
		}
		if err := save(path, modeRecord{Version: modeVersion, BootID: opt.BootID, GPU: g.id, Before: found.String()}); err != nil {
			return err
		}
		g.before, g.held = found, true
	}
	want := g.before
	switch {
	case n == 1:
		want = sharing.ComputeModeExclusiveProcess
	case n > 1:
		want = sharing.ComputeModeDefault
	}
	if err := opt.Modes.SetComputeMode(ctx, g.id, want); err != nil {
		if errors.Is(err, sharing.ErrUnsupported) {
			g.exclusive = false
			return nil
		}
		return fmt.Errorf("set the compute mode of GPU %s: %w", g.id, err)
	}
	got, err := opt.Modes.ComputeMode(ctx, g.id)
	if err != nil || got != want {
		return errors.Join(err, fmt.Errorf("the compute mode of GPU %s is %q after it was set to %q: %w", g.id, got.String(), want.String(), sharing.ErrUnavailable))
	}
	g.exclusive = n == 1
	if n > 0 {
		return nil
	}
	g.held = false
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("forget the compute mode of GPU %s: %w (%w)", g.id, err, sharing.ErrUnavailable)
	}
	return nil
}
