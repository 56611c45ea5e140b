// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	"github.com/kerf-gpu/kerf/sharing"
)

// instancesEvery is how often the engine asks for the GPUs' MIG instances.
const instancesEvery = 5 * time.Second

// Instance names a MIG instance by its GPU and NVML's id of the GPU instance.
type Instance struct {
	GPU sharing.GPUID
	GI  int
}

// instances are the MIG instances that are watched, for the profiling fields alone: the others are the GPU's.
type instances struct {
	every  time.Duration
	fields []dcgm.Short
	next   time.Time
	known  map[uint]Instance // by DCGM's number
	last   map[Instance]Values
	of     *dcgm.GroupHandle // nil while there are none
}

// follow asks for the GPUs' MIG instances, if it is time, and watches what is there. An engine that does not answer has
// no instances.
func (e *Engine) follow(now time.Time) error {
	in := &e.instances
	if len(in.fields) == 0 || now.Before(in.next) {
		return nil
	}
	in.next = now.Add(instancesEvery)
	all, err := dcgm.GetGPUInstanceHierarchy()
	if err != nil {
		e.log.Debug("failed to read MIG instances from DCGM", "error", err.Error())
		return nil
	}
	found := map[uint]Instance{}
	for _, h := range all.EntityList[:min(int(all.Count), len(all.EntityList))] {
		if h.Entity.EntityGroupId == dcgm.FE_GPU_I {
			found[h.Entity.EntityId] = Instance{sharing.GPUID(h.Info.GpuUuid), int(h.Info.NvmlInstanceId)}
		}
	}
	if maps.Equal(found, in.known) {
		return nil
	}
	if err := e.unfollow(); err != nil {
		return err
	}
	if len(found) == 0 {
		return nil
	}
	group, err := dcgm.CreateGroup("kerf-instances")
	if err != nil {
		return fmt.Errorf("watch mig instances: %w (%w)", err, sharing.ErrUnavailable)
	}
	in.of = &group
	for _, id := range slices.Sorted(maps.Keys(found)) {
		if err := dcgm.AddEntityToGroup(group, dcgm.FE_GPU_I, id); err != nil {
			return fmt.Errorf("watch mig instance %d: %w (%w)", id, err, sharing.ErrUnavailable)
		}
	}
	in.known, in.last = found, map[Instance]Values{}
	return e.watch(instanceFields, group, in.fields, in.every)
}

// instanceFields is the name of the group of fields that is watched on instances.
const instanceFields = "kerf-instances"

// unfollow ends the watch of the instances that there were.
func (e *Engine) unfollow() error {
	var err error
	e.groups = slices.DeleteFunc(e.groups, func(g *fieldGroup) bool {
		if g.name != instanceFields {
			return false
		}
		err = g.end()
		return true
	})
	return errors.Join(err, e.instances.end())
}

// end lets go of the group of instances.
func (in *instances) end() error {
	in.known, in.last = nil, nil
	if in.of == nil {
		return nil
	}
	err := dcgm.DestroyGroup(*in.of)
	in.of = nil
	if err != nil {
		return fmt.Errorf("let go of mig instances: %w (%w)", err, sharing.ErrUnavailable)
	}
	return nil
}
