// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/model"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// gpu answers on a GPU's socket.
func (c *device) gpu(req wire.Request) (wire.Response, error) {
	chain, err := c.chain(req)
	if c.peer.dead() { // so what chain found may be about a process that was given its number
		return wire.Response{}, wire.NoPermission
	}
	if err != nil {
		return wire.Response{}, err
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.d.reapFor(req.Op)
	if f := c.d.model.CallFault(c.minor, req.Op); f.Status != wire.OK {
		return wire.Response{}, f.Status
	}
	switch req.Op {
	case wire.OpGPUInfo:
		return c.info()
	case wire.OpMemory:
		m, err := c.memory(req.Args[0], chain)
		return vals(err, m.Total, m.Reserved, m.Free, m.Used, c.systemMemory())
	case wire.OpUtilization:
		gpu, mem, err := c.d.model.Utilization(c.minor, now())
		return vals(err, gpu, mem)
	case wire.OpProcesses:
		return c.processes(req.Args[0], wire.List(req.Args[1]))
	case wire.OpProcessUtil:
		return c.processUtil(req.Args[0])
	case wire.OpComputeMode:
		return c.computeMode(req.Args[0])
	case wire.OpPowerLimit:
		return c.powerLimit(req.Args[0])
	case wire.OpInstanceUtil:
		return c.instanceUtil()
	case wire.OpTelemetry:
		return c.telemetry(req.Args[0] == 1, chain)
	case wire.OpTopology:
		level, links, err := c.d.model.Topology(c.minor, small(req.Args[0]))
		return vals(err, level, links)
	case wire.OpNVLink:
		return c.nvlink(req.Args[0])
	case wire.OpMIGMode:
		mode, err := c.d.model.MIGMode(c.minor)
		return vals(err, flag(mode.Current), flag(mode.Pending))
	case wire.OpMIGProfile:
		return c.migProfile(req.Args[0])
	case wire.OpMIGInstances:
		return c.migInstances(req.Args[0] == 1)
	case wire.OpMIGSet, wire.OpGICreate, wire.OpGIDestroy, wire.OpCICreate, wire.OpCIDestroy:
		return c.partition(req)
	case wire.OpSetLimit:
		return c.setLimit(chain, sharing.Bytes(req.Args[0]), sharing.Bytes(req.Args[1]))
	case wire.OpGetLimit:
		l, err := c.d.model.GetLimit(c.minor, chain)
		return vals(err, l.Soft, l.Hard, l.Used)
	case wire.OpRecovery:
		r, err := c.d.model.Recovery(c.minor)
		return vals(err, r)
	default:
		return c.compute(req, chain)
	}
}

// compute answers what libcuda asks.
func (c *device) compute(req wire.Request, chain model.Chain) (wire.Response, error) {
	m, a := c.d.model, req.Args
	switch req.Op {
	case wire.OpCtxCreate:
		instance, err := c.instance(a[0])
		if err != nil {
			return wire.Response{}, err
		}
		create := m.CreateContext
		if wire.List(a[1]) == wire.ListGraphics {
			create = m.CreateGraphics
		}
		id, err := c.d.again(func() (uint64, error) { return create(c.client, instance, chain) })
		if err == nil {
			m.Begun(c.minor, now())
		}
		return vals(err, id)
	case wire.OpCtxDestroy:
		return vals[uint64](m.DestroyContext(c.client, a[0]))
	case wire.OpAlloc:
		at, err := c.d.again(func() (uint64, error) {
			return m.Alloc(c.client, sharing.Bytes(a[0]), a[1], wire.Kind(a[2]), chain)
		})
		return vals(err, at)
	case wire.OpFree:
		return vals[uint64](m.Free(c.client, a[0]))
	case wire.OpReside:
		bytes, err := m.Reside(c.client, a[0], sharing.Bytes(a[1]))
		return vals(err, bytes)
	case wire.OpImport:
		bytes, err := m.Import(c.client, a[0], a[1])
		return vals(err, bytes)
	case wire.OpExport:
		return vals[uint64](m.Export(c.client, a[0]))
	case wire.OpMPSServe:
		return vals[uint64](m.Serve(c.client))
	case wire.OpMPSJoin:
		return vals[uint64](m.AddMPSClient(c.client, small(a[0]), sharing.Bytes(a[1]), a[2]))
	case wire.OpMPSState:
		return vals[uint64](m.ServerState(small(a[0])))
	case wire.OpCheckpoint:
		state, err := m.Checkpoint(c.minor, small(a[0]), wire.Checkpoint(a[1]), chain)
		return vals(err, state)
	case wire.OpLaunch:
		done, err := m.Run(c.client, model.Kernel{Context: a[0], Blocks: a[1], Threads: a[2], Asked: nanoseconds(a[4]),
			After: nanoseconds(a[5])}, now())
		return vals(err, done)
	case wire.OpCopy:
		done, err := m.Copy(c.client, a[0], sharing.Bytes(a[1]), nanoseconds(a[2]), now())
		return vals(err, done)
	case wire.OpClock:
		at, err := m.Clock(c.client, nanoseconds(a[0]), now())
		return vals(err, at.Clock, at.Soonest, at.Passed)
	default:
		return wire.Response{}, wire.Invalid
	}
}

// nanoseconds are those of an argument; the model refuses what is too long.
func nanoseconds(n uint64) time.Duration { return time.Duration(min(n, 1<<62)) } // #nosec G115 -- bounded

// chain is the cgroups that an operation is about: the one it names, or the caller's own.
func (c *device) chain(req wire.Request) (model.Chain, error) {
	switch req.Op {
	case wire.OpSetLimit, wire.OpGetLimit:
		lost, unlimited := c.state()
		refused := req.Op == wire.OpSetLimit && (!c.peer.administrator() || unlimited)
		if refused || !c.d.opts.Driver.MemoryLimits || lost {
			return nil, nil // the model says why, whatever the directory
		}
		return c.d.groups.resolve(c.peer.pid, req.Text)
	case wire.OpMemory:
		if req.Args[0] != 0 {
			return nil, nil // of a MIG instance, which no cgroup's limit changes
		}
		return c.d.groups.chainOf(c.peer.pid)
	case wire.OpTelemetry:
		if req.Args[0] != 1 {
			return nil, nil // without memory
		}
		return c.d.groups.chainOf(c.peer.pid)
	case wire.OpCtxCreate, wire.OpAlloc:
		return c.d.groups.chainOf(c.peer.pid)
	case wire.OpCheckpoint: // of the other process, if that may be touched
		pid := small(req.Args[0])
		if err := c.peer.mayTouch(pid); err != nil {
			return nil, err
		}
		return c.d.groups.chainOf(pid)
	default:
		return nil, nil
	}
}

// state says whether the GPU is lost, and whether it takes no limit: in MIG mode, or without dedicated memory.
func (c *device) state() (lost, unlimited bool) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	hw, err := c.d.model.Hardware(c.minor)
	return err != nil, hw.MIG || hw.Model.SystemMemory
}

// reapFor reaps before an operation that shows memory in use, adds to it, or names a process by its number. So the peak
// never counts a dead process together with its successor. d.mu is held.
func (d *Daemon) reapFor(op wire.Op) {
	switch op {
	case wire.OpAlloc, wire.OpCtxCreate, wire.OpMemory, wire.OpTelemetry, wire.OpProcesses, wire.OpProcessUtil,
		wire.OpMPSJoin, wire.OpMPSState, wire.OpCheckpoint, wire.OpExport, wire.OpSetLimit, wire.OpGetLimit,
		wire.OpMIGSet, wire.OpGIDestroy, wire.OpCIDestroy:
		d.reap()
	default:
	}
}

// again tries once more when there was no memory, or another process, but that may have been a dead one's. d.mu is
// held.
func (d *Daemon) again(take func() (uint64, error)) (uint64, error) {
	v, err := take()
	if errors.Is(err, wire.OutOfMemory) || errors.Is(err, wire.InUse) {
		d.reap()
		v, err = take()
	}
	return v, err
}

func (c *device) setLimit(chain model.Chain, soft, hard sharing.Bytes) (wire.Response, error) {
	if c.d.sets++; c.d.sets%forgetEvery == 0 {
		c.d.forgetDead()
	}
	err := c.d.model.SetLimit(c.minor, c.peer.administrator(), chain, soft, hard)
	dir := ""
	if len(chain) > 0 {
		dir = chain[0].Dir
	}
	c.d.log.Info("limit", "gpu", c.minor, "cgroup", dir, "soft", uint64(soft), "hard", uint64(hard), "pid", c.peer.pid,
		"error", err)
	return vals[uint64](err)
}

// forgetEvery is after how many limits that were set those of removed cgroups are looked for. Nothing can see
// them before: the list of limits leaves them out, and no cgroup has a number that another one had. To look at
// each time would make the cost of a limit grow with their number, which no driver's does.
const forgetEvery = 256

// forgetDead clears the limits on cgroups that have been removed. d.mu is held.
func (d *Daemon) forgetDead() {
	for _, l := range d.model.Limits() {
		if !d.groups.alive(l.Group) {
			d.model.ForgetGroup(l.Group.ID)
		}
	}
}

// instanceUtil adds up the work of the processes of each MIG instance.
func (c *device) instanceUtil() (wire.Response, error) {
	instances, err1 := c.d.model.Instances(c.minor)
	work, err2 := c.d.model.WorkOf(c.minor, now())
	busy := map[uint64]uint64{}
	if len(work) > 0 {
		all, err := c.d.model.Listed(c.minor, wire.ListCompute)
		if err != nil {
			return wire.Response{}, err
		}
		for _, p := range model.Sum(all, func(u model.Use) int { return u.PID }) {
			busy[p.GI] += uint64(work[p.PID]) // #nosec G115 -- a percentage
		}
	}
	return page(errors.Join(err1, err2), instances, 0,
		func(in model.Instance) []uint64 { return []uint64{in.GI, busy[in.GI]} })
}

// telemetry reads the sensors and, where that is wanted, what else a monitor needs of a GPU at once.
func (c *device) telemetry(more bool, chain model.Chain) (wire.Response, error) {
	t, err := c.d.model.Telemetry(c.minor, now())
	r, err := vals(err, t.Power, t.PowerLimit, t.SMClock, t.MaxSMClock, t.MemoryClock, t.MaxMemoryClock, t.Temperature,
		// #nosec G115 -- 0 or 1
		t.ECC.Corrected, t.ECC.Uncorrected, uint64(flag(t.Remap.Pending)), uint64(flag(t.Remap.Failed)),
		t.Slowed.Bits())
	if err != nil || !more {
		return r, err
	}
	gpu, mem, err1 := c.d.model.Utilization(c.minor, now())
	m, err2 := c.memory(0, chain)
	// #nosec G115 -- none is negative
	r.Vals = append(r.Vals, uint64(gpu), uint64(mem), uint64(m.Total), uint64(m.Reserved), uint64(m.Free),
		uint64(m.Used), uint64(c.systemMemory()))
	return r, errors.Join(err1, err2)
}

// computeMode reads the mode, after it was set where the caller wants that.
func (c *device) computeMode(mode uint64) (wire.Response, error) {
	if mode != wire.Unknown {
		err := c.d.model.SetComputeMode(c.minor, c.peer.administrator(), model.ComputeMode(mode))
		c.d.log.Info("compute mode", "gpu", c.minor, "mode", mode, "pid", c.peer.pid, "error", err)
		if err != nil {
			return wire.Response{}, err
		}
	}
	got, err := c.d.model.ComputeMode(c.minor)
	return vals(err, got)
}

// powerLimit reads the limit, after it was set where the caller wants that.
func (c *device) powerLimit(limit uint64) (wire.Response, error) {
	if limit != wire.Unknown {
		err := c.d.model.SetPowerLimit(c.minor, c.peer.administrator(), limit)
		c.d.log.Info("power limit", "gpu", c.minor, "milliwatts", limit, "pid", c.peer.pid, "error", err)
		if err != nil {
			return wire.Response{}, err
		}
	}
	p, err := c.d.model.PowerLimit(c.minor)
	return vals(err, p.Now, p.Default, p.Min, p.Max)
}

// page answers with the length of a list, and with as many of its entries from offset on as fit.
func page[T any](err error, all []T, offset uint64, row func(T) []uint64) (wire.Response, error) {
	if err != nil {
		return wire.Response{}, err
	}
	out := []uint64{uint64(len(all))}
	for _, e := range all[min(offset, uint64(len(all))):] {
		r := row(e)
		if len(out)+len(r) > wire.MaxVals {
			break
		}
		out = append(out, r...)
	}
	return wire.Response{Vals: out}, nil
}

// vals makes an answer of numbers, or hands the error on.
func vals[T ~uint64 | ~int | ~int64](err error, v ...T) (wire.Response, error) {
	if err != nil {
		return wire.Response{}, err
	}
	var r wire.Response
	for _, x := range v {
		r.Vals = append(r.Vals, uint64(x)) // #nosec G115 -- none is negative
	}
	return r, nil
}

// small turns an argument into an index; one too large becomes one that no GPU has.
func small(arg uint64) int { return int(min(arg, 1<<20)) } // #nosec G115 -- bounded
