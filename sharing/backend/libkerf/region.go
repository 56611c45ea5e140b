// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"errors"
	"fmt"
	"sync"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/members"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/overhead"
)

// region is the folder of one grant, and what was seen of it.
type region struct {
	// root is the grant's folder, and dir the region's in it.
	root, dir string
	// mu is held while open is used.
	mu   sync.Mutex
	open *libkerf.UsageFile
	// account and members are the upkeep's alone.
	account overhead.Account
	members *members.Members
	// The backend's lock guards the others. The reason why the content of the region is unknown is lost. The processes
	// that do not count are uncounted. The driver's last report of the use of time is reported.
	lost      string
	uncounted []overhead.Process
	reported  []reportedTime
}

// makeRegion creates the folder of a grant that no process uses yet. The loader of owner's programs finds the library
// by the path preload. They put aside themselves what a context takes.
func makeRegion(root, preload string, owner uint32, own sharing.Placement,
	contexts map[sharing.GPURef]contextsize.Size) (*region, error) {
	folder := libkerf.Folder{Owner: owner, Preload: preload}
	for _, f := range own {
		folder.Devices = append(folder.Devices, libkerf.Device{GPU: f.GPU, Limit: f.Memory})
	}
	opened, err := folder.Make(root)
	if err != nil {
		return nil, fmt.Errorf("make region: %w", err)
	}
	for _, f := range own {
		err := opened.SetContext(f.GPU, libkerf.UnknownContext)
		if size, known := contexts[f.GPU]; known && err == nil {
			err = setContext(opened, f.GPU, size)
		}
		if err != nil {
			return nil, errors.Join(err, opened.Close())
		}
	}
	g := &region{root: root, dir: libkerf.UsageFileDir(root), open: opened, members: members.New(members.Node{})}
	for _, f := range own {
		if err := g.setPercent(f, f.Percent > 0); err != nil { // from the first launch on
			return nil, errors.Join(err, opened.Close())
		}
	}
	return g, nil
}

// findRegion opens the folder of a grant that an earlier agent made. It does not replace a missing or damaged one:
// running programs would not know of it, and new ones get no memory without it.
func findRegion(root string) *region {
	g := &region{root: root, dir: libkerf.UsageFileDir(root), members: members.New(members.Node{})}
	opened, err := libkerf.Open(g.dir)
	if err != nil {
		g.lost = err.Error()
		return g
	}
	g.open = opened
	return g
}

// use calls f with the open region; it is no error where there is none. What goes wrong is that the folder was
// spoilt.
func (g *region) use(f func(*libkerf.UsageFile) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		return nil
	}
	return libkerf.Guarded(func() error { return f(g.open) })
}

// limit sets the caps to those of the placement.
func (g *region) limit(inForce sharing.Placement) error {
	return g.use(func(open *libkerf.UsageFile) error {
		for _, f := range inForce {
			if err := open.SetLimit(f.GPU, f.Memory); err != nil {
				return err
			}
		}
		return nil
	})
}

// remove takes the folder away; programs that have it mapped keep what they have mapped.
func (g *region) remove() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	if g.open != nil {
		err = g.open.Close()
		g.open = nil
	}
	return errors.Join(err, libkerf.RemoveFolder(g.root))
}

// usage is what the programs count of a GPU; it is false if the region has no such GPU.
func (g *region) usage(gpu sharing.GPURef) (u libkerf.Usage, there bool, err error) {
	err = g.use(func(open *libkerf.UsageFile) error {
		for _, one := range open.Usage() {
			if one.GPU == gpu {
				u, there = one, true
			}
		}
		return nil
	})
	return u, there, err
}

// setContext has the processes of a region reserve the size that is known now. A region that an older agent made keeps
// its size until one is measured.
func setContext(open *libkerf.UsageFile, gpu sharing.GPURef, size contextsize.Size) error {
	if size.Measured {
		return open.SetContext(gpu, size.Bytes)
	}
	return open.SetBound(gpu, size.Bytes)
}
