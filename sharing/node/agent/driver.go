// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/internal/filelock"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/monitor/health"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/caps"
	"github.com/kerf-gpu/kerf/sharing/caps/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/settings"
)

const (
	// driverRetry is how long to wait before a driver that is not there is looked for again.
	driverRetry = time.Second
	// reprobeEvery is how often a level that could not be told is asked for again.
	reprobeEvery = 5 * time.Second
	// openDeadline bounds taking stock of a driver that has just appeared.
	openDeadline = 60 * time.Second
)

// followDriver uses the driver while there is one, and looks for it while there is none.
func (a *agent) followDriver(ctx context.Context) error {
	said := ""
	for {
		err := a.useDriver(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the agent is stopping; the error is only of that
		case errors.Is(err, sharing.ErrConflict):
			return err // another agent has a GPU: this one has no business here
		case errors.Is(err, settings.ErrRescan):
			// The others stay as they are; only new claims wait, for as long as opening the driver takes.
			a.log.Info("taking stock of the GPUs again", "reason", err.Error())
			a.runtime.SetBlocked("rescan", err.Error())
			continue
		}
		a.machines = nil // the next driver is loaded anew
		a.mendInstances()
		a.runtime.SetBlocked("rescan", "")
		if text := err.Error(); text != said {
			a.log.Warn("no driver in use; looking for one", "reason", text)
			said = text
		}
		a.runtime.Detach(err.Error())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(driverRetry):
		}
	}
}

// useDriver takes the driver into use and returns when it is gone, always with an error but at the end.
func (a *agent) useDriver(ctx context.Context) (err error) {
	open, cancel := context.WithTimeout(ctx, openDeadline)
	defer cancel()
	lib, err := nvml.Open(open, nvml.Options{LibraryPaths: a.opt.Driver.Libraries, ReadOnly: a.opt.ReadOnly(), Log: a.log})
	if err != nil {
		err = fmt.Errorf("open the driver's NVML library: %w", err)
		if mend := a.opt.Driver.By.Mend(nvml.LackOf(err)); mend != "" {
			err = fmt.Errorf("%w; %s", err, mend)
		}
		return err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	all, leftOut, err := lib.GPUs(open)
	if err != nil {
		return fmt.Errorf("take stock of the GPUs: %w", err)
	}
	a.rules.Apply(all)
	gpus := a.rules.Admit(all)
	release, err := a.lockGPUs(open, gpus)
	if err != nil {
		return err
	}
	defer release()
	quiet := newGate()
	cut, err := a.cutter(lib, gpus, quiet)
	if err != nil {
		return err
	}
	if all, leftOut, err = a.firstCut(open, lib, cut, all, leftOut); err != nil {
		return err
	}
	gpus = a.rules.Admit(all)
	a.runtime.SetMIG(migDoor{cut})
	a.cut.Store(cut)
	defer func() {
		a.cut.Store(nil)
		a.runtime.SetMIG(nil)
		// What is under way ends before another one looks at the GPUs, or is cut off.
		cut.Stop(context.WithoutCancel(ctx))
		a.cutBefore = cut
	}()
	door := &driverDoor{lib: lib, quiet: quiet}
	parts := a.parts(cut, gpus)
	if err := a.mps.use(open, lib, a.runtime.MPSLeases()); err != nil {
		a.log.Error("mps daemons not all found again", "error", err.Error())
	}
	defer a.mps.lib.Store(nil)
	att := a.attachment(open, lib, slices.Concat(gpus, parts), leftOut)
	att.Driver = &partDoor{driverDoor{lib: lib, version: lib.System().DriverVersion, quiet: quiet}, cut}
	if err := a.runtime.Attach(open, att); err != nil {
		return fmt.Errorf("take the driver into use: %w", err)
	}
	a.runtime.SetBlocked("rescan", "")
	a.log.Info("driver in use", "version", att.Driver.Version(), "gpus", len(gpus), "memory_limits", lib.HasMemoryLimits())
	ids, known := idsOf(gpus), idsOf(all)
	w := &health.Watch{
		Driver: door, GPUs: ids, Log: a.log, Tell: a.runtime.SetHealth, Every: health.Interval, Deadline: health.Deadline, Machines: a.machines,
		Hurt:         a.hurt.machines,
		TellInstance: func(in health.Instance, h sharing.Health, reason string) { a.tellInstance(cut, in, h, reason) },
		Fault: func(gpu sharing.GPUID, xid uint64, class health.Class) {
			a.events.XID(string(gpu), xid, class.String())
		},
	}
	defer func() { a.machines, a.hurt.machines = w.Machines, w.Hurt }()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.Run(ctx) })
	g.Go(func() error { return a.reprobe(ctx, lib, att) })
	g.Go(func() error { return a.rules.KeepModes(ctx, lib, gpus, a.mps.changedModes) })
	g.Go(func() error { return a.keepCut(ctx, cut, gpus, parts) })
	g.Go(func() error { return a.rules.Follow(ctx, all) })
	g.Go(func() error { return a.contextProber(lib, att.Driver).Run(ctx) })
	if len(leftOut) > 0 {
		g.Go(func() error { return a.rescan(ctx, lib, known) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

func idsOf(gpus []sharing.GPU) []sharing.GPUID {
	ids := make([]sharing.GPUID, 0, len(gpus))
	for _, g := range gpus {
		ids = append(ids, g.UUID)
	}
	return ids
}

// reprobe asks again for the level of GPUs whose first probe could not tell, one that was lost, say, and for backends
// that the configuration did not list at first.
func (a *agent) reprobe(ctx context.Context, lib *nvml.Library, att node.Attachment) error {
	backend := a.backend(lib)
	levels := maps.Clone(att.Levels)
	open := func(id sharing.GPUID) bool {
		_, asked := levels[id][config.BackendMPS]
		return levels[id].Undecided() || !asked && a.runtime.Lists(config.BackendMPS)
	}
	t := time.NewTicker(reprobeEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		for _, g := range att.GPUs {
			if !open(g.UUID) {
				continue
			}
			probe, cancel := context.WithTimeout(ctx, health.Deadline)
			rep := a.report(probe, lib, backend, g)
			cancel()
			if !rep.Undecided() {
				a.runtime.SetLevel(g.UUID, rep)
				levels[g.UUID] = rep
			}
		}
	}
}

// rescan looks for devices that were left out of the inventory, a lost GPU that is back, say. It ends with
// settings.ErrRescan once there is one that is not among had, so that stock is taken anew. Their number tells nothing:
// another may be lost meanwhile.
func (a *agent) rescan(ctx context.Context, lib *nvml.Library, had []sharing.GPUID) error {
	t := time.NewTicker(reprobeEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		look, cancel := context.WithTimeout(ctx, openDeadline)
		gpus, _, err := lib.GPUs(look)
		cancel()
		fresh := func(g sharing.GPU) bool { return !slices.Contains(had, g.UUID) }
		if err == nil && slices.ContainsFunc(gpus, fresh) {
			return fmt.Errorf("a GPU that was left out answers now: %w", settings.ErrRescan)
		}
	}
}

// backend is the driver's memory limits, with scratch cgroups of ours to probe them on: one that a crash
// leaves behind is empty, and removed at the next start.
func (a *agent) backend(lib *nvml.Library) *caps.Driver {
	return caps.NewDriver(lib, caps.InHierarchy(a.cgroups, func() string { return path.Join(a.cgroupParent, "probe-"+newID()) }))
}

// report asks each backend what it can do for shares of the GPU.
func (a *agent) report(ctx context.Context, lib *nvml.Library, driver *caps.Driver, g sharing.GPU) choice.Report {
	if g.UUID.IsPart() {
		return a.partReport(ctx, lib, g)
	}
	rep := choice.Report{
		config.BackendDriver:   driver.Probe(ctx, g),
		config.BackendLibkerf:  a.preloadProbe(lib).Probe(g),
		config.BackendReactive: caps.ProbeWatch(ctx, lib, a.opt.Driver.PIDs, g),
	}
	if a.runtime.Lists(config.BackendMPS) {
		rep[config.BackendMPS] = a.mps.probe(ctx, g)
	}
	for _, b := range config.Backends() {
		if s, asked := rep[b]; asked && !s.OK() {
			a.log.Warn("backend not usable on this GPU now", "backend", b.String(), "gpu", string(g.UUID), "answer", s.Answer.String(), "reason", s.Reason, "remedy", s.Remedy)
		}
	}
	return rep
}

// lockGPUs keeps other agents off the GPUs until release is called.
func (a *agent) lockGPUs(ctx context.Context, gpus []sharing.GPU) (release func(), err error) {
	var locks []*filelock.Lock
	release = func() {
		for _, l := range locks {
			l.Release()
		}
	}
	for _, g := range gpus {
		l, err := filelock.Take(ctx, filepath.Join(a.opt.Dirs.Locks, string(g.UUID)+".lock"), fmt.Sprintf("GPU %d (%s)", g.Index, g.UUID), a.opt.Dirs.Dir)
		if err != nil {
			release()
			return nil, err
		}
		locks = append(locks, l)
	}
	return release, nil
}

// attachment asks each GPU whether it answers and which level it can give.
func (a *agent) attachment(ctx context.Context, lib *nvml.Library, gpus []sharing.GPU, leftOut []error) node.Attachment {
	att := node.Attachment{Levels: make(map[sharing.GPUID]choice.Report, len(gpus))}
	for _, err := range leftOut {
		att.LeftOut = append(att.LeftOut, err.Error())
	}
	backend := a.backend(lib)
	if lib.HasMemoryLimits() {
		att.Caps = capper{backend}
	}
	for _, g := range gpus {
		att.GPUs = append(att.GPUs, g)
		att.Levels[g.UUID] = a.report(ctx, lib, backend, g)
	}
	return att
}

// driverDoor turns the NVML door into what runtime and health watch ask for.
type driverDoor struct {
	lib     *nvml.Library
	version string
	// quiet keeps its calls off a GPU whose instances are being changed.
	quiet *gate
}

// Version implements node.Driver.
func (d *driverDoor) Version() string { return d.version }

// Sample implements node.Driver.
func (d *driverDoor) Sample(ctx context.Context, id sharing.GPUID) (node.Sample, error) {
	leave, err := d.quiet.enter(id)
	if err != nil {
		return node.Sample{}, err
	}
	defer leave()
	m, err := d.lib.Memory(ctx, id)
	if err != nil {
		return node.Sample{}, err
	}
	s := node.Sample{Used: m.Used, Utilization: -1}
	if u, err := d.lib.Utilization(ctx, id); err == nil {
		s.Utilization = u
	}
	if s.Processes, err = d.listed(ctx, id); err != nil {
		return node.Sample{}, err
	}
	return s, nil
}

// Processes implements node.Driver.
func (d *driverDoor) Processes(ctx context.Context, id sharing.GPUID) ([]node.ProcessUse, error) {
	leave, err := d.quiet.enter(id)
	if err != nil {
		return nil, err
	}
	defer leave()
	return d.listed(ctx, id)
}

func (d *driverDoor) listed(ctx context.Context, id sharing.GPUID) ([]node.ProcessUse, error) {
	procs, err := d.lib.Processes(ctx, id)
	if err != nil {
		return nil, err
	}
	return usesOf(procs), nil
}

func usesOf(procs []nvml.Process) []node.ProcessUse {
	out := make([]node.ProcessUse, 0, len(procs))
	for _, p := range procs {
		out = append(out, node.ProcessUse{PID: p.PID, Used: p.Used, Known: p.Known, MPS: p.MPS})
	}
	return out
}

// ProcessTime implements node.Driver.
func (d *driverDoor) ProcessTime(ctx context.Context, id sharing.GPUID, since time.Time) (sharing.TimeUse, error) {
	leave, err := d.quiet.enter(id)
	if err != nil {
		return sharing.TimeUse{}, err
	}
	defer leave()
	return d.lib.ProcessTime(ctx, id, since)
}

// Power implements node.Driver.
func (d *driverDoor) Power(ctx context.Context, id sharing.GPUID) (float64, error) {
	leave, err := d.quiet.enter(id)
	if err != nil {
		return 0, err
	}
	defer leave()
	milliwatts, err := d.lib.Power(ctx, id)
	return float64(milliwatts) / 1000, err
}

// Check implements health.Driver. A GPU that is being cut answers to who cuts it.
func (d *driverDoor) Check(ctx context.Context, id sharing.GPUID) error {
	leave, err := d.quiet.enter(id)
	if err != nil {
		return nil
	}
	defer leave()
	return d.lib.Check(ctx, id)
}

// Recovery implements health.Driver.
func (d *driverDoor) Recovery(ctx context.Context, id sharing.GPUID) health.Recovery {
	leave, err := d.quiet.enter(id)
	if err != nil {
		return health.Recovery{}
	}
	defer leave()
	r, err := d.lib.RecoveryAction(ctx, id)
	if err != nil {
		return health.Recovery{}
	}
	if r == nvml.RecoveryNone {
		return health.Recovery{Known: true}
	}
	return health.Recovery{Known: true, Action: r.String()}
}

// Sensors implements health.Driver.
func (d *driverDoor) Sensors(ctx context.Context, id sharing.GPUID) health.Sensors {
	leave, err := d.quiet.enter(id)
	if err != nil {
		return health.Sensors{}
	}
	defer leave()
	s, err := d.lib.Signs(ctx, id)
	if err != nil {
		return health.Sensors{}
	}
	return sensorsOf(s)
}

// sensorsOf are a GPU's signs as the watch takes them.
func sensorsOf(s nvml.Signs) health.Sensors {
	return health.Sensors{
		Uncorrected: told(s.Uncorrected), Links: told(s.Links),
		RemapPending: flag(s.RemapPending), RemapFailed: flag(s.RemapFailed),
		Overheat: flag(s.ThermalSlowdown), PowerBrake: flag(s.PowerBrake),
	}
}

func told(n *uint64) health.Count {
	if n == nil {
		return health.Count{}
	}
	return health.Count{Known: true, N: *n}
}

func flag(b *bool) health.Flag {
	switch {
	case b == nil:
		return health.Untold
	case *b:
		return health.Yes
	}
	return health.No
}

// NextXID implements health.Driver.
func (d *driverDoor) NextXID(ctx context.Context) (health.XID, error) {
	ev, err := d.lib.WaitEvent(ctx)
	x := health.XID{GPU: ev.GPU, GI: health.WholeGPU, XID: ev.XID}
	if ev.GI != nil {
		x.GI = int(*ev.GI)
	}
	return x, err
}

// capper turns the driver backend into what the runtime asks for.
type capper struct{ backend *caps.Driver }

// Least implements node.Capper.
func (capper) Least() sharing.Bytes { return caps.LeastLimit }

// Apply implements node.Capper.
func (c capper) Apply(ctx context.Context, dir string, own []sharing.Fragment, others []sharing.GPUID) error {
	limits := limitsOf(own, others)
	if len(limits) == 0 {
		return nil
	}
	return c.backend.Apply(ctx, dir, limits)
}

// Renew implements node.Capper.
func (c capper) Renew(ctx context.Context, dir string, own []sharing.Fragment, others []sharing.GPUID) error {
	limits := limitsOf(own, others)
	if len(limits) == 0 {
		return nil
	}
	return c.backend.Renew(ctx, dir, limits)
}

// limitsOf are the limits of a grant's fragments, and the least one on all other GPUs. A whole GPU has none.
func limitsOf(own []sharing.Fragment, others []sharing.GPUID) []caps.Limit {
	var limits []caps.Limit
	for _, f := range own {
		if !f.Whole {
			limits = append(limits, caps.Limit{GPU: f.GPU, Memory: f.Memory})
		}
	}
	for _, id := range others {
		limits = append(limits, caps.Limit{GPU: id, Memory: caps.LeastLimit})
	}
	return limits
}

// Read implements node.Capper.
func (c capper) Read(ctx context.Context, dir string, gpu sharing.GPUID) (limit, used sharing.Bytes, err error) {
	r, err := c.backend.Read(ctx, dir, gpu)
	if err == nil && r.Cap == caps.NoCap {
		return 0, 0, fmt.Errorf("cgroup %q has no limit on GPU %q: %w", dir, gpu, sharing.ErrNotFound)
	}
	return r.Cap, r.Used, err
}

// Clear implements node.Capper.
func (c capper) Clear(ctx context.Context, dir string, gpus []sharing.GPUID) error {
	return c.backend.Clear(ctx, dir, gpus)
}
