// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"strings"

	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/model"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// partition answers requests that change the MIG mode, or create and destroy MIG instances.
func (c *device) partition(req wire.Request) (wire.Response, error) {
	m, a, admin := c.d.model, req.Args, c.peer.administrator()
	var id uint64
	var err error
	switch req.Op {
	case wire.OpMIGSet:
		var activation model.Activation
		activation, err = m.SetMIGMode(c.minor, model.Caller{PID: c.peer.pid, Root: admin}, a[0])
		id = uint64(activation)
	case wire.OpGICreate:
		id, err = m.CreateGI(c.minor, admin, a[0], place(a[1]))
	case wire.OpGIDestroy:
		err = m.DestroyGI(c.minor, admin, a[0])
	case wire.OpCICreate:
		id, err = m.CreateCI(c.minor, admin, a[0], small(a[1]), place(a[2]))
	case wire.OpCIDestroy:
		err = m.DestroyCI(c.minor, admin, a[0], a[1])
	default:
		err = wire.Invalid
	}
	c.d.log.Info("mig", "gpu", c.minor, "op", uint32(req.Op), "arg0", a[0], "arg1", a[1], "pid", c.peer.pid, "error",
		err)
	c.d.showCaps()
	return vals(err, id)
}

// place is where an instance shall begin.
func place(arg uint64) int {
	if arg == wire.Unknown {
		return model.AnyStart
	}
	return small(arg)
}

// memory is that of the GPU, or of a MIG instance.
func (c *device) memory(instance uint64, chain model.Chain) (model.Memory, error) {
	if instance == 0 {
		return c.d.model.MemoryFor(c.client, chain)
	}
	return c.d.model.InstanceMemory(c.minor, instance)
}

// instance is the MIG device that a context of the caller's is to be on: the one that is asked for or, with 0, the
// first that there is for the caller. It is the caller's to use while it can reach its capability nodes.
func (c *device) instance(asked uint64) (uint64, error) {
	mode, err := c.d.model.MIGMode(c.minor)
	if err != nil || !mode.Current {
		return asked, nil //nolint:nilerr // a GPU without MIG; the model answers
	}
	list, err := c.d.model.Instances(c.minor)
	if err != nil {
		return 0, err
	}
	for _, in := range list {
		for _, ci := range in.Computes {
			id := in.GI | ci.ID<<wire.ComputeShift
			if (asked == 0 || asked == id) && c.reaches(in, ci.ID) {
				return id, nil
			}
		}
	}
	return 0, wire.NoPermission
}

// migInstances lists the MIG devices, and the GPU instances that have none; or those devices alone that the caller may
// use.
func (c *device) migInstances(own bool) (wire.Response, error) {
	list, err := c.d.model.Instances(c.minor)
	if err != nil {
		return wire.Response{}, err
	}
	out := []uint64{0}
	var uuids []string
	add := func(in model.Instance, ci uint64, of model.Compute, uuid string) {
		p := in.Profile
		out[0]++
		// #nosec G115 -- checked
		out = append(out, in.GI, p.ID, uint64(in.Start), uint64(p.Size), ci, uint64(p.Memory), p.Index,
			uint64(of.Start), uint64(of.Slices))
		uuids = append(uuids, uuid)
	}
	for _, in := range list {
		for _, ci := range in.Computes {
			if !own || c.reaches(in, ci.ID) {
				add(in, ci.ID, ci, migUUID(c.d.uuids[c.minor], in, ci))
			}
		}
		if len(in.Computes) == 0 && !own {
			add(in, wire.NoInstance, model.Compute{}, "")
		}
	}
	return wire.Response{Vals: out, Text: strings.Join(uuids, "\n")}, nil
}

// migUUID is the UUID of a compute instance.
func migUUID(gpu string, in model.Instance, ci model.Compute) string {
	if ci.Made == 0 {
		return machine.MIGUUID(gpu, small(in.GI), small(ci.ID))
	}
	return machine.MadeMIGUUID(gpu, ci.Made)
}
