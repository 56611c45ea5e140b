// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/internal/gpusim/machine"
	"github.com/kerf-gpu/kerf/internal/gpusim/model"
	"github.com/kerf-gpu/kerf/internal/gpusim/wire"
)

// cut answers what changes the MIG mode, and what makes and destroys MIG instances.
func (c *device) cut(req wire.Request) (wire.Response, error) {
	m, a, admin := c.d.model, req.Args, c.peer.administrator()
	var id uint64
	var err error
	switch req.Op {
	case wire.OpMIGSet:
		var activation model.Activation
		activation, err = m.SetMIGMode(c.minor, admin, a[0])
		id = uint64(activation)
	case wire.OpGICreate:
		start := model.AnyStart
		if a[1] != wire.Unknown {
			start = small(a[1])
		}
		id, err = m.CreateGI(c.minor, admin, a[0], start)
	case wire.OpGIDestroy:
		err = m.DestroyGI(c.minor, admin, a[0])
	case wire.OpCICreate:
		id, err = m.CreateCI(c.minor, admin, a[0])
	case wire.OpCIDestroy:
		err = m.DestroyCI(c.minor, admin, a[0], a[1])
	default:
		err = wire.Invalid
	}
	c.d.log.Info("mig", "gpu", c.minor, "op", uint32(req.Op), "arg0", a[0], "arg1", a[1], "pid", c.peer.pid, "error", err)
	c.d.showCaps()
	return vals(err, id)
}

// memory is that of the GPU, or of a MIG instance.
func (c *device) memory(instance uint64, chain model.Chain) (model.Memory, error) {
	if instance == 0 {
		return c.d.model.MemoryFor(c.client, chain)
	}
	return c.d.model.InstanceMemory(c.minor, instance)
}

// instance is the MIG instance that a context of the caller's is to be on: the one that is asked for or, with 0, the
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
		if in.Compute && (asked == 0 || asked == in.GI) && c.reaches(in.GI) {
			return in.GI, nil
		}
	}
	return 0, wire.NoPermission
}

// migInstances lists the instances, or those alone that the caller may use.
func (c *device) migInstances(own bool) (wire.Response, error) {
	list, err := c.d.model.Instances(c.minor)
	if err != nil {
		return wire.Response{}, err
	}
	if own {
		list = slices.DeleteFunc(list, func(in model.Instance) bool { return !in.Compute || !c.reaches(in.GI) })
	}
	out := []uint64{uint64(len(list))}
	uuids := make([]string, len(list))
	for i, in := range list {
		ci := wire.NoInstance
		if in.Compute {
			ci = 0
			uuids[i] = migUUID(c.d.uuids[c.minor], in)
		}
		p := in.Profile
		out = append(out, in.GI, p.ID, uint64(in.Start), uint64(p.Size), ci, uint64(p.Memory), p.Index) // #nosec G115 -- checked
	}
	return wire.Response{Vals: out, Text: strings.Join(uuids, "\n")}, nil
}

// migUUID is the UUID of an instance's compute instance.
func migUUID(gpu string, in model.Instance) string {
	if in.Made == 0 {
		return machine.MIGUUID(gpu, small(in.GI), 0)
	}
	return machine.MadeMIGUUID(gpu, in.Made)
}
