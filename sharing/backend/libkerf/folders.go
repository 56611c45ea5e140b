// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
)

// forget removes the regions of grants that ended from a folder. The caller holds making.
func (b *Backend) forget(folder string) error {
	b.mu.Lock()
	var old []*region
	b.spent = slices.DeleteFunc(b.spent, func(g *region) bool {
		if g.root == folder {
			old = append(old, g)
		}
		return g.root == folder
	})
	b.mu.Unlock()
	var errs []error
	for _, g := range old {
		errs = append(errs, g.remove())
	}
	return errors.Join(errs...)
}

// Clean implements backend.Backend. It removes the regions of grants that ended.
func (b *Backend) Clean(context.Context) {
	b.making.Lock()
	defer b.making.Unlock()
	b.mu.Lock()
	spent := b.spent
	b.spent = nil
	b.mu.Unlock()
	for _, g := range spent {
		if err := g.remove(); err != nil {
			b.opt.Log.Warn("failed to remove usage files of a grant", "dir", g.root, "error", err.Error())
		}
	}
}

// Sweep removes the folders of no grant. One that cannot be removed takes a fixed amount of memory and harms no grant.
func (b *Backend) Sweep() {
	if b.opt.Dir == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := func(name string) bool { return b.regions[name] != nil }
	if err := libkerf.RemoveFolders(b.opt.Dir, kept); err != nil {
		b.opt.Log.Warn("failed to remove usage files without a grant", "error", err.Error())
	}
}

// Found is what a grant without a checkpoint was given, by the limits of its region, which only root can write. It is
// false if there is no region.
func (b *Backend) Found(id string) (p sharing.Placement, ok bool) {
	if b.opt.Dir == "" {
		return nil, false
	}
	found := findRegion(b.opt.folder(id))
	err := found.use(func(open *libkerf.UsageFile) error {
		for _, u := range open.Usage() {
			p = append(p, sharing.Share{GPU: u.GPU, Memory: u.Limit})
		}
		return open.Close()
	})
	return p, err == nil && len(p) > 0
}

// Injection implements backend.Backend. A grant without a region gets nothing. In the mount namespace of a process, the
// region covers the grant's folder. So programs of every user in the grant can enter it, and none can write the caps.
func (b *Backend) Injection(g backend.Grant, _ sharing.Placement) (backend.Injection, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	has := b.of(g.ID)
	if has == nil {
		return backend.Injection{}, nil
	}
	from, to := has.dir, clientDir // and the usage file, where it is
	usage, preload := filepath.Join(has.dir, libkerf.UsageFileName), filepath.Join(has.dir, libkerf.PreloadName)
	if !g.Contained {
		to = has.root
		usage, preload = filepath.Join(has.root, libkerf.UsageFileName), filepath.Join(has.root, libkerf.PreloadName)
	}
	in := backend.Injection{Library: libkerf.PreloadPath(has.root), Mounts: []sharing.Mount{
		{Source: from, Target: to, ReadOnly: true},
		{Source: b.opt.Library, Target: filepath.Join(to, libkerf.LibraryFile), ReadOnly: true},
		{Source: usage, Target: filepath.Join(to, libkerf.UsageFileName)},
	}}
	if !g.ByEnv {
		in.Mounts = append(in.Mounts, sharing.Mount{Source: preload, Target: preloadFile, ReadOnly: true})
	}
	return in, nil
}
