// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Recover takes over what an earlier program of this agent has left, given the current grants by their daemons. A
// daemon that runs and is needed goes on undisturbed; one that is needed and does not run is started. Recover ends all
// others, and unknown files below the directory. It restores compute modes that no domain needs any more. Call it once,
// before Acquire. It returns all errors joined. Run tries again for a known daemon.
func (s *Supervisor) Recover(ctx context.Context, held map[Key]map[string]Terms) error {
	var errs []error
	written, err := s.records()
	errs = append(errs, err)
	var spare []string
	for k, attachments := range held {
		if len(attachments) == 0 {
			continue
		}
		g := s.gpu(k.GPU)
		r, known := written[k]
		if !known {
			r.place = s.opt.newPlace(k)
		}
		d := newDomain(&s.opt, k, r.place)
		d.begun = true
		maps.Copy(d.attachments, attachments)
		if known && r.BootID == s.opt.BootID {
			d.pid, d.start = r.PID, r.Start
		}
		if d.alive() {
			spare = append(spare, d.daemon.Pipe)
		} else {
			d.pid = 0
		}
		g.domains[k.Domain] = d
		s.settle(d)
		g.mu.Unlock()
	}
	errs = append(errs, sweep(ctx, s.opt.Dir, spare), s.forget())
	for _, g := range s.all() {
		errs = append(errs, s.resume(ctx, g))
	}
	return errors.Join(errs...)
}

// forget removes the directories of daemons that are ended, and learns which GPUs had their mode changed.
func (s *Supervisor) forget() error {
	dirs, err := os.ReadDir(s.opt.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for MPS daemons: %w (%w)", err, sharing.ErrUnavailable)
	}
	var errs []error
	for _, dir := range dirs {
		path := filepath.Join(s.opt.Dir, dir.Name())
		var r modeRecord
		if err := load(filepath.Join(path, modeName), &r); err == nil && r.BootID == s.opt.BootID &&
			gpuDir(r.GPU) == dir.Name() {
			if before, err := sharing.ParseComputeMode(modeName, r.Before); err == nil {
				g := s.gpu(r.GPU)
				g.before, g.held = before, true
				g.mu.Unlock()
			}
		}
		below, err := os.ReadDir(path)
		errs = append(errs, err)
		for _, b := range below {
			if name := filepath.Join(path, b.Name()); b.Name() != modeName &&
				!s.known(strings.TrimSuffix(name, recordSuffix)) {
				errs = append(errs, removeAll(name))
			}
		}
	}
	return errors.Join(errs...)
}

// known reports whether a directory is a domain's.
func (s *Supervisor) known(dir string) bool {
	for _, g := range s.all() {
		g.mu.Lock()
		for _, d := range g.domains {
			if d.place.dir == dir {
				g.mu.Unlock()
				return true
			}
		}
		g.mu.Unlock()
	}
	return false
}

// resume puts mode and daemons of a GPU in order.
func (s *Supervisor) resume(ctx context.Context, g *gpu) error {
	g.mu.Lock()
	defer s.release(g)
	var errs []error
	for _, d := range g.domains {
		errs = append(errs, d.make())
	}
	errs = append(errs, g.setMode(ctx, &s.opt, len(g.domains)))
	for _, d := range g.domains {
		errs = append(errs, d.up(ctx))
	}
	return errors.Join(errs...)
}
