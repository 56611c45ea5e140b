// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/members"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/overhead"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// Where a container finds the library and the region of its grant, and what makes programs load it.
const (
	clientDir   = "/usr/local/lib/kerf"
	preloadFile = "/etc/ld.so.preload"
)

// ClientPaths are where the preloaded library keeps what it needs. The zero value is that of an agent without it.
type ClientPaths struct {
	// Dir is where each grant that the library holds has a folder; root alone can write to it.
	Dir string
	// Library is libkerf.so, which root alone can write to, on a file system from which programs may run. It outlives
	// the agent.
	Library string
}

// region is the folder of one grant, and what was seen of it.
type region struct {
	// root is the grant's folder, and dir the region's in it.
	root, dir string
	// mu is held while open is used.
	mu   sync.Mutex
	open *libkerf.Region
	// account and members are the upkeep's alone.
	account overhead.Account
	members *members.Members
	// lost and uncounted are guarded by the runtime's lock: why nothing is known of the region any more, and which
	// processes of the lease do not count.
	lost      string
	uncounted []overhead.Process
	// excess says what the lease holds above its cap, see excessOf. The runtime's lock guards it.
	excess string
	// told is what the driver said last of the lease's use of time; it is guarded by the runtime's lock, too.
	told []toldTime
}

// makeRegion creates the folder of a grant that no process uses yet. The loader of owner's programs finds the library by
// the path preload. They put aside themselves what a context takes.
func makeRegion(root, preload string, owner uint32, own sharing.Placement, contexts map[sharing.GPUID]contextsize.Size) (*region, error) {
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
	g := &region{root: root, dir: libkerf.RegionIn(root), open: opened, members: members.New(members.Node{})}
	for _, f := range own {
		if err := g.setPercent(f, f.Percent > 0); err != nil { // from the first launch on
			return nil, errors.Join(err, opened.Close())
		}
	}
	return g, nil
}

// findRegion opens the folder of a grant that an earlier agent made. One that is not there, or not whole, is not
// made anew: programs that run would not know of it, and those that start get no memory without it.
func findRegion(root string) *region {
	g := &region{root: root, dir: libkerf.RegionIn(root), members: members.New(members.Node{})}
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
func (g *region) use(f func(*libkerf.Region) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		return nil
	}
	return libkerf.Guarded(func() error { return f(g.open) })
}

// limit sets the caps to what is in force.
func (g *region) limit(inForce sharing.Placement) error {
	return g.use(func(open *libkerf.Region) error {
		for _, f := range inForce {
			if err := open.SetLimit(f.GPU, f.Memory); err != nil {
				return err
			}
		}
		return nil
	})
}

// caps are the caps in force.
func (g *region) caps() (map[sharing.GPUID]sharing.Bytes, error) {
	out := map[sharing.GPUID]sharing.Bytes{}
	err := g.use(func(open *libkerf.Region) error {
		for _, u := range open.Usage() {
			out[u.GPU] = u.Limit
		}
		return nil
	})
	return out, err
}

// settle brings the caps of a lease that was found again and the books to the same: what it is lent is in its region
// alone. It needs the lock.
func (r *Runtime) settle(g ledger.Grant, found *region) error {
	limits, err := found.caps()
	if err != nil {
		return err
	}
	for _, f := range g.Caps() {
		limit, there := limits[f.GPU]
		if f.Whole || !there {
			continue
		}
		if put, ok := r.judgeCap(g, f, limit, nil); !ok {
			if err := found.limit(sharing.Placement{put}); err != nil {
				return err
			}
		}
	}
	return nil
}

// counted is what the programs have reserved of a GPU.
func (g *region) counted(gpu sharing.GPUID) (n sharing.Bytes, err error) {
	err = g.use(func(open *libkerf.Region) error {
		for _, u := range open.Usage() {
			if u.GPU == gpu {
				n = u.Used
			}
		}
		return nil
	})
	return n, err
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

// holdRegion makes sure that a grant which the library holds has its region, with the caps that are to be in
// force. It comes before the container is made, or the process goes on.
func (r *Runtime) holdRegion(id ledger.ClaimID, inForce sharing.Placement) error {
	r.mu.Lock()
	h := r.held[id]
	g, _ := r.ledger.Get(id)
	if h == nil || h.backend != config.BackendLibkerf {
		r.mu.Unlock()
		return nil
	}
	had := r.sharedRegion(id)
	whole, root := had != nil && had.lost == "", filepath.Join(r.opt.Client.Dir, string(g.Claim.Root()))
	runs := g.Lease != nil || r.usedBeside(g)
	if whole {
		h.region = had
	}
	preload, owner, contained := libkerf.PreloadPath(root), g.Claim.Owner.UID, h.container || g.Claim.Owner.Pod()
	if contained {
		preload, owner = libkerf.PreloadPath(clientDir), 0
	}
	contexts, managed := r.contextSizes(), r.pool.ManagedMemory
	r.mu.Unlock()
	if whole {
		return had.limit(inForce)
	}
	if runs {
		return fmt.Errorf("region of grant %q is not whole, and its processes run: %w", id, sharing.ErrUnavailable)
	}
	r.making.Lock() // what is left of a lease that ended lies in the same folder
	defer r.making.Unlock()
	if err := r.forgetSpent(root); err != nil {
		return err
	}
	made, err := makeRegion(root, preload, owner, inForce, contexts)
	if err != nil {
		return err
	}
	err = made.setManaged(managed)
	if caller := g.Claim.Owner.PID; err == nil && caller > 0 { // it may have mounts of its own
		// It need not see what the runtime of its container mounts.
		if err = libkerf.ShowFolder(root, caller); contained {
			err = nil
		}
	}
	if err != nil {
		return errors.Join(err, made.remove())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[id] != h || r.sharedRegion(id) != had { // dropped meanwhile, or made by another call
		r.spent = append(r.spent, made)
		return fmt.Errorf("grant %q ended: %w", id, sharing.ErrStale)
	}
	for _, one := range r.ledger.Sharers(id) {
		if o := r.held[one]; o != nil && o.region != nil { // what they had is not whole
			o.region = made
		}
	}
	h.region = made
	return nil
}

// forgetSpent closes the regions of grants that ended which the upkeep has not removed from a folder yet. The caller holds
// making.
func (r *Runtime) forgetSpent(root string) error {
	r.mu.Lock()
	var old []*region
	r.spent = slices.DeleteFunc(r.spent, func(g *region) bool {
		if g.root == root {
			old = append(old, g)
		}
		return g.root == root
	})
	r.mu.Unlock()
	var errs []error
	for _, g := range old {
		errs = append(errs, g.remove())
	}
	return errors.Join(errs...)
}

// removeSpent removes the regions of grants that ended.
func (r *Runtime) removeSpent() {
	r.making.Lock()
	defer r.making.Unlock()
	r.mu.Lock()
	spent := r.spent
	r.spent = nil
	r.mu.Unlock()
	for _, g := range spent {
		if err := g.remove(); err != nil {
			r.log.Warn("region left behind", "dir", g.root, "error", err.Error())
		}
	}
}

func (g *region) why() string {
	if g == nil {
		return "it has none"
	}
	return g.lost
}

// spend leaves a claim's region to be removed by the upkeep, unless another that shares its cap has it still. It needs
// the lock.
func (r *Runtime) spend(h *holding) {
	old := h.region
	if old == nil {
		return
	}
	h.region = nil
	for _, o := range r.held {
		if o.region == old {
			return
		}
	}
	r.spent = append(r.spent, old)
}

// reopen opens the region of a grant that was found again, if the library holds it. It needs the lock.
func (r *Runtime) reopen(id ledger.ClaimID, h *holding) {
	if h.backend != config.BackendLibkerf || h.region != nil || r.opt.Client.Dir == "" {
		return
	}
	g, ok := r.ledger.Get(id)
	if h.region = r.sharedRegion(id); h.region == nil {
		h.region = findRegion(filepath.Join(r.opt.Client.Dir, string(g.Claim.Root())))
	}
	if h.region.lost != "" {
		r.log.Error("region of a grant is not whole", "claim", id, "reason", h.region.lost)
		return
	}
	// A crash may have come between the record and the region, and what it is lent is in the region alone. At a start the
	// books are whole only after the last of those that share a cap.
	if ok && g.Lease != nil && r.restored {
		r.settleOr(g, h.region)
	}
}

// settleAll is settle for all leases that were found at a start. It needs the lock.
func (r *Runtime) settleAll() {
	for _, g := range r.ledger.Grants() {
		if h := r.held[g.Claim.ID]; g.Lease != nil && h != nil && h.region != nil && h.region.lost == "" {
			r.settleOr(g, h.region)
		}
	}
}

// settleOr is settle; a region that cannot be settled is lost. It needs the lock.
func (r *Runtime) settleOr(g ledger.Grant, found *region) {
	if err := r.settle(g, found); err != nil {
		found.lost = err.Error()
	}
}

// sweepRegions removes the regions of no grant. If the record was lost, some of them may turn out to be those of grants
// that run, and all stay until the next start. One that cannot be removed takes a fixed amount of memory and harms no
// grant. It needs the lock.
func (r *Runtime) sweepRegions() {
	if r.opt.Client.Dir == "" || r.unrecorded {
		return
	}
	kept := map[string]bool{}
	for _, h := range r.held {
		if h.region != nil {
			kept[filepath.Base(h.region.root)] = true
		}
	}
	if err := libkerf.RemoveFolders(r.opt.Client.Dir, func(name string) bool { return kept[name] }); err != nil {
		r.log.Warn("failed to remove regions of no grant", "error", err.Error())
	}
}

// placementOfRegion is what a grant without a record was given, by the limits of its region, which root alone can
// write to; false where it has no region.
func (r *Runtime) placementOfRegion(id ledger.ClaimID) (p sharing.Placement, ok bool) {
	if r.opt.Client.Dir == "" {
		return nil, false
	}
	found := findRegion(filepath.Join(r.opt.Client.Dir, string(id)))
	err := found.use(func(open *libkerf.Region) error {
		for _, u := range open.Usage() {
			p = append(p, sharing.Fragment{GPU: u.GPU, Memory: u.Limit})
		}
		return open.Close()
	})
	return p, err == nil && len(p) > 0
}

// containerMounts are what a container of the grant gets, host paths first. It needs the lock.
func (r *Runtime) containerMounts(h *holding) []sharing.Mount {
	if h.region == nil {
		return nil
	}
	dir := h.region.dir
	return []sharing.Mount{
		{Source: dir, Target: clientDir, ReadOnly: true},
		{Source: r.opt.Client.Library, Target: filepath.Join(clientDir, libkerf.LibraryFile), ReadOnly: true},
		{Source: filepath.Join(dir, libkerf.UsageFile), Target: filepath.Join(clientDir, libkerf.UsageFile)},
		{Source: filepath.Join(dir, libkerf.PreloadName), Target: preloadFile, ReadOnly: true},
	}
}

// processMounts are what a process of its own gets in a mount namespace of its own. There the region covers the grant's
// folder, so that programs of every user in the grant can enter it, and the caps cannot be reached for writing. With byEnv
// the library is not put into the loader's file: the program's environment names it.
func (r *Runtime) processMounts(h *holding, byEnv bool) []sharing.Mount {
	if h.region == nil {
		return nil
	}
	root := h.region.root
	usage, preload := filepath.Join(root, libkerf.UsageFile), filepath.Join(root, libkerf.PreloadName)
	mounts := []sharing.Mount{
		{Source: h.region.dir, Target: root, ReadOnly: true},
		{Source: r.opt.Client.Library, Target: filepath.Join(root, libkerf.LibraryFile), ReadOnly: true},
		{Source: usage, Target: usage},
	}
	if !byEnv {
		mounts = append(mounts, sharing.Mount{Source: preload, Target: preloadFile, ReadOnly: true})
	}
	return mounts
}
