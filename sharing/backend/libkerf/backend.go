// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
	"github.com/kerf-gpu/kerf/sharing/lists"
)

// Where a container finds the library and the region of its grant, and what makes programs load it.
const (
	clientDir   = "/usr/local/lib/kerf"
	preloadFile = "/etc/ld.so.preload"
)

// Paths are where the backend keeps its files. The zero value is that of a machine without libkerf.
type Paths struct {
	// Dir is where each grant has a folder. Only root can write to it.
	Dir string
	// Library is libkerf.so. Only root can write to it. It is on a file system from which programs may run, and it
	// outlives the agent.
	Library string
}

// Rules are what a config and a node say of all regions.
type Rules struct {
	// RejectManaged makes programs fail that allocate managed memory.
	RejectManaged bool
	// Contexts are the sizes that a context is taken to need.
	Contexts map[sharing.GPURef]contextsize.Size
}

// Options are what a Backend is made of.
type Options struct {
	Paths
	Log *slog.Logger
	// Lists tell whose processes the driver lists.
	Lists *lists.Lists
	// Rules returns the rules of this moment.
	Rules func() Rules
}

// Kind is the name of this backend among others.
const Kind = sharing.BackendLibkerf

// Backend has the regions of all grants that libkerf enforces. It is safe for concurrent use. Its methods may be called
// with the lock of the runtime held, except Prepare, Enforce and Upkeep.
type Backend struct {
	opt Options

	// making is held while the folder of a region is made or removed. It is taken before mu.
	making sync.Mutex

	mu sync.Mutex
	// roots is the root of each grant that has a region, and regions has one for each root.
	roots   map[string]string
	regions map[string]*region
	// spent are regions of grants that ended. Upkeep removes them.
	spent []*region
}

// New has no regions yet.
func New(opt Options) *Backend {
	return &Backend{opt: opt, roots: map[string]string{}, regions: map[string]*region{}}
}

func (p Paths) folder(root string) string { return filepath.Join(p.Dir, root) }

// of is the region of a grant, nil if it has none. It needs the lock.
func (b *Backend) of(id string) *region { return b.regions[b.roots[id]] }

// whole is the region of a grant, or of one that shares its cap; nil if none has a whole one.
func (b *Backend) whole(root string) *region {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.regions[root]; g != nil && g.lost == "" {
		return g
	}
	return nil
}

// join is whole, and the region becomes the grant's.
func (b *Backend) join(g backend.Grant) *region {
	b.mu.Lock()
	defer b.mu.Unlock()
	had := b.regions[g.Root]
	if had == nil || had.lost != "" {
		return nil
	}
	b.roots[g.ID] = g.Root
	return had
}

var _ backend.Backend = (*Backend)(nil)

// Prepare implements backend.Backend. It does not change a region that the grant has. The enforced cap of a running
// container changes when the next one is activated.
func (b *Backend) Prepare(ctx context.Context, g backend.Grant, caps sharing.Placement) error {
	if b.Whole(g.ID) {
		return nil
	}
	return b.Enforce(ctx, g, caps)
}

// Enforce implements backend.Backend. It makes sure that a grant has its region. sharing.ErrUnavailable if the region
// is not whole and programs run.
func (b *Backend) Enforce(_ context.Context, g backend.Grant, caps sharing.Placement) error {
	if had := b.join(g); had != nil {
		return had.limit(caps)
	}
	if g.Active {
		return fmt.Errorf("region of grant %q is not whole, and its processes run: %w", g.ID, sharing.ErrUnavailable)
	}
	rules := b.opt.Rules()
	b.making.Lock() // what is left of a grant that ended lies in the same folder
	defer b.making.Unlock()
	if had := b.join(g); had != nil { // a grant that shares the cap made it meanwhile
		return had.limit(caps)
	}
	if err := b.forget(b.opt.folder(g.Root)); err != nil {
		return err
	}
	made, err := b.make(g, caps, rules)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.roots[g.ID], b.regions[g.Root] = g.Root, made
	return nil
}

func (b *Backend) make(g backend.Grant, caps sharing.Placement, rules Rules) (*region, error) {
	folder := b.opt.folder(g.Root)
	preload, owner := libkerf.PreloadPath(folder), g.UID
	if g.Contained {
		preload, owner = libkerf.PreloadPath(clientDir), 0
	}
	made, err := makeRegion(folder, preload, owner, caps, rules.Contexts)
	if err != nil {
		return nil, err
	}
	err = made.use(func(open *libkerf.UsageFile) error {
		open.RejectManaged(rules.RejectManaged)
		return nil
	})
	if err == nil && g.PID > 0 { // it may have a mount namespace
		// A process need not see what the runtime of its container mounts.
		if err = libkerf.ShowFolder(folder, g.PID); g.Contained {
			err = nil
		}
	}
	if err != nil {
		return nil, errors.Join(err, made.remove())
	}
	return made, nil
}

// Recover implements backend.Backend. It opens the region of a grant that an earlier agent made.
func (b *Backend) Recover(g backend.Grant) bool {
	if b.opt.Dir == "" {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of(g.ID) != nil {
		return false
	}
	b.roots[g.ID] = g.Root
	found := b.regions[g.Root]
	if found == nil {
		found = findRegion(b.opt.folder(g.Root))
		b.regions[g.Root] = found
	}
	if found.lost != "" {
		b.opt.Log.Error("usage file of a grant was damaged", "grant", g.ID, "reason", found.lost)
	}
	return found.lost == ""
}

// Settle sets the caps of a region that was found again to the granted ones. For each cap, judge says whether it may
// stay, and else what it should be. A region that cannot be settled is damaged.
func (b *Backend) Settle(g backend.Grant, caps sharing.Placement,
	judge func(f sharing.Share, have sharing.Bytes) (sharing.Share, bool)) {
	has := b.whole(g.Root)
	if has == nil {
		return
	}
	settle := func(f sharing.Share) error {
		u, there, err := has.usage(f.GPU)
		if err != nil || f.Whole || !there {
			return err
		}
		if put, ok := judge(f, u.Limit); !ok {
			return has.limit(sharing.Placement{put})
		}
		return nil
	}
	for _, f := range caps {
		if err := settle(f); err != nil {
			b.mu.Lock()
			has.lost = err.Error()
			b.mu.Unlock()
			return
		}
	}
}

// Resize implements backend.Backend. sharing.ErrUnavailable if the region is not whole.
func (b *Backend) Resize(_ context.Context, g backend.Grant, caps sharing.Placement) error {
	has := b.whole(g.Root)
	if has == nil {
		return fmt.Errorf("the counters of its programs are not whole: %w", sharing.ErrUnavailable)
	}
	return has.limit(caps)
}

// Read implements backend.Backend. Programs count memory before they ask the driver for it.
func (b *Backend) Read(_ context.Context, g backend.Grant, gpu sharing.GPURef) (backend.Reading, error) {
	has := b.whole(g.Root)
	if has == nil {
		return backend.Reading{}, fmt.Errorf("region of grant %q: %w", g.ID, sharing.ErrNotFound)
	}
	u, there, err := has.usage(gpu)
	if err == nil && !there {
		u.Limit = backend.NoCap
	}
	return backend.Reading{Cap: u.Limit, Used: u.Used}, err
}

// Release implements backend.Backend. The region stays while another grant shares the cap.
func (b *Backend) Release(g backend.Grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	root, had := b.roots[g.ID]
	delete(b.roots, g.ID)
	for _, other := range b.roots {
		had = had && other != root
	}
	if had {
		b.spent = append(b.spent, b.regions[root])
		delete(b.regions, root)
	}
}
