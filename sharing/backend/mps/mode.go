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

// rule is what becomes of the mode of a GPU.
func (o *Options) rule(id sharing.GPUID) ModeRule {
	if o.Rule == nil {
		return ManageMode
	}
	return o.Rule(id)
}

// found is the mode that a GPU has now. sharing.ErrUnavailable: it admits no program.
func (g *gpu) found(ctx context.Context, opt *Options) (sharing.ComputeMode, error) {
	mode, err := opt.Modes.ComputeMode(ctx, g.id)
	if err != nil {
		return mode, fmt.Errorf("read the compute mode of GPU %s: %w", g.id, err)
	}
	if mode == sharing.ComputeModeProhibited {
		return mode,
			fmt.Errorf("the compute mode of GPU %s forbids every program; allow them with nvidia-smi -c DEFAULT: %w",
				g.id, sharing.ErrUnavailable)
	}
	return mode, nil
}

// keep sets no mode, and learns whether the one there is admits one process alone.
func (g *gpu) keep(ctx context.Context, opt *Options, n int) error {
	g.exclusive = false
	if n == 0 {
		return nil
	}
	mode, err := g.found(ctx, opt)
	if errors.Is(err, sharing.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	g.exclusive = mode == sharing.ComputeModeExclusiveProcess
	return nil
}

// admits is an error if the GPU's mode admits one server, and more domains than one have begun.
func (g *gpu) admits() error {
	begun := 0
	for _, d := range g.domains {
		if d.begun {
			begun++
		}
	}
	if !g.exclusive || begun < 2 {
		return nil
	}
	return fmt.Errorf("GPU %s has compute mode EXCLUSIVE_PROCESS, which admits one MPS server, and Kerf may not "+
		"change it; "+
		"set DEFAULT, or use another GPU: %w", g.id, sharing.ErrUnavailable)
}

// setMode sets the mode that n domains need: exclusive process for one, default for more, and the original mode for
// none. It reads back what it sets.
func (g *gpu) setMode(ctx context.Context, opt *Options, n int) error {
	if rule := opt.rule(g.id); rule == ReadMode || rule == ModeUnchanged && !g.held {
		return g.keep(ctx, opt, n)
	}
	if n == 0 && !g.held {
		return nil
	}
	path := filepath.Join(opt.gpuPath(g.id), modeName)
	if !g.held {
		found, err := g.found(ctx, opt)
		if errors.Is(err, sharing.ErrUnsupported) {
			return nil // then none is held, and State says so
		}
		if err != nil {
			return err
		}
		if err := save(path, modeRecord{Version: modeVersion, BootID: opt.BootID, GPU: g.id,
			Before: found.String()}); err != nil {
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
		return errors.Join(err, fmt.Errorf("the compute mode of GPU %s is %q after it was set to %q: %w", g.id,
			got.String(), want.String(), sharing.ErrUnavailable))
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

// ModesChanged are the GPUs whose compute mode was changed and not put back, in order.
func (s *Supervisor) ModesChanged() []sharing.GPUID {
	var out []sharing.GPUID
	for _, g := range s.all() {
		g.mu.Lock()
		if g.held {
			out = append(out, g.id)
		}
		g.mu.Unlock()
	}
	return out
}
