// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
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

// Clean removes the regions of grants that ended.
func (b *Backend) Clean() {
	b.making.Lock()
	defer b.making.Unlock()
	b.mu.Lock()
	spent := b.spent
	b.spent = nil
	b.mu.Unlock()
	for _, g := range spent {
		if err := g.remove(); err != nil {
			b.opt.Log.Warn("region left behind", "dir", g.root, "error", err.Error())
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
		b.opt.Log.Warn("failed to remove regions of no grant", "error", err.Error())
	}
}

// Found is what a grant without a checkpoint was given, by the limits of its region, which only root can write. It is
// false if there is no region.
func (b *Backend) Found(id string) (p sharing.Placement, ok bool) {
	if b.opt.Dir == "" {
		return nil, false
	}
	found := findRegion(b.opt.folder(id))
	err := found.use(func(open *libkerf.Region) error {
		for _, u := range open.Usage() {
			p = append(p, sharing.Fragment{GPU: u.GPU, Memory: u.Limit})
		}
		return open.Close()
	})
	return p, err == nil && len(p) > 0
}

// Mounts are what a container of the grant gets, host paths first; nil if it has no region.
func (b *Backend) Mounts(id string) []sharing.Mount {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.of(id)
	if g == nil {
		return nil
	}
	return []sharing.Mount{
		{Source: g.dir, Target: clientDir, ReadOnly: true},
		{Source: b.opt.Library, Target: filepath.Join(clientDir, libkerf.LibraryFile), ReadOnly: true},
		{Source: filepath.Join(g.dir, libkerf.UsageFile), Target: filepath.Join(clientDir, libkerf.UsageFile)},
		{Source: filepath.Join(g.dir, libkerf.PreloadName), Target: preloadFile, ReadOnly: true},
	}
}

// ProcessMounts are what a process gets in a mount namespace of its own, and the library that it and its children load;
// "" if the grant has no region. The region covers the grant's folder there, so that programs of every user in the grant
// can enter it, and none can write the caps. With byEnv the environment of the program names the library, and the loader's
// file does not.
func (b *Backend) ProcessMounts(id string, byEnv bool) (mounts []sharing.Mount, library string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.of(id)
	if g == nil {
		return nil, ""
	}
	usage, preload := filepath.Join(g.root, libkerf.UsageFile), filepath.Join(g.root, libkerf.PreloadName)
	mounts = []sharing.Mount{
		{Source: g.dir, Target: g.root, ReadOnly: true},
		{Source: b.opt.Library, Target: filepath.Join(g.root, libkerf.LibraryFile), ReadOnly: true},
		{Source: usage, Target: usage},
	}
	if !byEnv {
		mounts = append(mounts, sharing.Mount{Source: preload, Target: preloadFile, ReadOnly: true})
	}
	return mounts, libkerf.PreloadPath(g.root)
}
