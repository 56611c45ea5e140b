// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// These bounds exceed any driver's. One is for kinds of profile, since newer drivers have more than the header of this
// build. The other is for instances of one profile.
const (
	maxKinds     = 40
	maxInstances = 64
)

// ask calls a function after its symbol was found.
func ask[T any](d *goAdapter, name string, fn func() (T, nvml.Return)) (T, error) {
	if err := d.need(name); err != nil {
		var zero T
		return zero, err
	}
	v, r := fn()
	return v, check(name, r)
}

// do is ask for a function that answers nothing.
func do(d *goAdapter, name string, fn func() nvml.Return) error {
	_, err := ask(d, name, func() (struct{}, nvml.Return) { return struct{}{}, fn() })
	return err
}

// goMIG is the part of MIG of one GPU.
type goMIG struct{ goDevice }

func (g goDevice) partitioner() partitioner { return goMIG{g} }

func (g goMIG) migMode() (MIGMode, error) {
	return ask(g.d, "nvmlDeviceGetMigMode", func() (MIGMode, nvml.Return) {
		current, pending, r := g.dev.GetMigMode()
		return MIGMode{current == nvml.DEVICE_MIG_ENABLE, pending == nvml.DEVICE_MIG_ENABLE}, r
	})
}

func (g goMIG) migNeedsReset() (bool, error) {
	const hopper = 9
	major, err := ask(g.d, "nvmlDeviceGetCudaComputeCapability", func() (int, nvml.Return) {
		major, _, r := g.dev.GetCudaComputeCapability()
		return major, r
	})
	return major < hopper, err
}

func (g goMIG) setMIGMode(on bool) (Activation, error) {
	const name = "nvmlDeviceSetMigMode"
	mode := nvml.DEVICE_MIG_DISABLE
	if on {
		mode = nvml.DEVICE_MIG_ENABLE
	}
	activation, err := ask(g.d, name, func() (nvml.Return, nvml.Return) { return g.dev.SetMigMode(mode) })
	switch {
	case err != nil:
		return ActivationDone, err
	case activation == nvml.ERROR_IN_USE:
		return ActivationInUse, nil
	case activation == nvml.ERROR_RESET_REQUIRED:
		return ActivationReset, nil
	}
	return ActivationDone, check(name, activation)
}

func (g goMIG) migProfiles() ([]MIGProfile, error) {
	if _, err := g.migMode(); err != nil {
		return nil, err // a GPU that cannot do MIG says so here
	}
	var list []MIGProfile
	for kind := range maxKinds {
		p, err := g.profile(kind)
		if errors.Is(err, sharing.ErrUnsupported) || errors.Is(err, sharing.ErrInvalid) {
			continue // a kind that this GPU, or this driver, has not
		}
		if err != nil {
			return nil, err
		}
		again := slices.ContainsFunc(list, func(q MIGProfile) bool { return q.ID == p.ID })
		if len(p.Starts) > 0 && !again {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return nil, check("nvmlDeviceGetGpuInstanceProfileInfoV", nvml.ERROR_NOT_SUPPORTED)
	}
	return list, nil
}

func (g goMIG) profile(kind int) (MIGProfile, error) {
	info, err := ask(g.d, "nvmlDeviceGetGpuInstanceProfileInfoV", g.dev.GetGpuInstanceProfileInfoV(kind).V2)
	if err != nil {
		return MIGProfile{}, err
	}
	name := make([]byte, 0, len(info.Name))
	for _, c := range info.Name {
		if c == 0 {
			break
		}
		name = append(name, byte(c)) //nolint:gosec // a C string
	}
	p := MIGProfile{
		ID: int(info.Id), Name: strings.TrimPrefix(string(name), "MIG "), Compute: int(info.SliceCount),
		SMs:          int(info.MultiprocessorCount),
		MaxInstances: int(info.InstanceCount), CopyEngines: int(info.CopyEngineCount), Decoders: int(info.DecoderCount),
		Encoders: int(info.EncoderCount), JPEGs: int(info.JpegCount), OFAs: int(info.OfaCount),
	}
	if err := errors.Join(checkName(p.Name), p.setMemory(info.MemorySizeMB)); err != nil {
		return MIGProfile{}, fmt.Errorf("mig profile %d: %w (%w)", p.ID, err, sharing.ErrUnavailable)
	}
	places, err := ask(g.d, "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
		func() ([]nvml.GpuInstancePlacement, nvml.Return) {
			return g.dev.GetGpuInstancePossiblePlacements(&nvml.GpuInstanceProfileInfo{Id: info.Id})
		})
	for _, at := range places {
		p.Size = int(at.Size)
		p.Starts = append(p.Starts, int(at.Start))
	}
	slices.Sort(p.Starts)
	return p, err
}

func (p *MIGProfile) setMemory(mib uint64) error {
	if mib == 0 || mib > 1<<30 {
		return fmt.Errorf("the driver reports %d MiB: %w", mib, sharing.ErrUnavailable)
	}
	p.Memory = sharing.Bytes(mib) * sharing.MiB // at most 2^50
	return nil
}

func (g goMIG) migInstances() ([]MIGInstance, error) {
	if mode, err := g.migMode(); err != nil || !mode.Current {
		return nil, err
	}
	profiles, err := g.migProfiles()
	if err != nil {
		return nil, err
	}
	var list []MIGInstance
	for _, p := range profiles {
		const name = "nvmlDeviceGetGpuInstances"
		handles, err := ask(g.d, name, func() ([]nvml.GpuInstance, nvml.Return) {
			return g.dev.GetGpuInstances(&nvml.GpuInstanceProfileInfo{Id: uint32(p.ID), InstanceCount: maxInstances}) //nolint:gosec // it was one
		})
		if err != nil {
			return nil, err
		}
		for _, h := range handles {
			info, err := ask(g.d, "nvmlGpuInstanceGetInfo", h.GetInfo)
			if err != nil {
				return nil, err
			}
			in := MIGInstance{GI: int(info.Id), Profile: int(info.ProfileId), Start: int(info.Placement.Start)}
			if in.Computes, err = g.computes(h, p.Compute); err != nil {
				return nil, err
			}
			list = append(list, in)
		}
	}
	slices.SortFunc(list, func(a, b MIGInstance) int { return cmp.Compare(a.GI, b.GI) })
	return list, nil
}

// migSlots asks no more than where each instance is: what migInstances finds takes hundreds of calls.
func (g goMIG) migSlots() ([]MIGInstance, error) {
	parts, err := g.instances()
	if err != nil {
		return nil, err
	}
	var list []MIGInstance
	for _, p := range parts {
		h, err := g.instance(p.gi)
		if err != nil {
			return nil, err
		}
		info, err := ask(g.d, "nvmlGpuInstanceGetInfo", h.GetInfo)
		if err != nil {
			return nil, err
		}
		list = append(list, MIGInstance{GI: p.gi, Profile: int(info.ProfileId), Start: int(info.Placement.Start)})
	}
	slices.SortFunc(list, func(a, b MIGInstance) int { return cmp.Compare(a.GI, b.GI) })
	return list, nil
}

// compute returns a compute profile of a GPU instance.
func (g goMIG) compute(h nvml.GpuInstance, kind int) (nvml.ComputeInstanceProfileInfo, error) {
	return ask(g.d, "nvmlGpuInstanceGetComputeInstanceProfileInfo",
		func() (nvml.ComputeInstanceProfileInfo, nvml.Return) {
			return h.GetComputeInstanceProfileInfo(kind, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		})
}

// eachCompute calls fn for each compute profile of a GPU instance, until it says that this was enough.
func (g goMIG) eachCompute(h nvml.GpuInstance, fn func(nvml.ComputeInstanceProfileInfo) (enough bool,
	err error)) error {
	for kind := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		p, err := g.compute(h, kind)
		if errors.Is(err, sharing.ErrUnsupported) || errors.Is(err, sharing.ErrInvalid) {
			continue
		}
		if err != nil {
			return err
		}
		if enough, err := fn(p); enough || err != nil {
			return err
		}
	}
	return nil
}

// computes lists the compute instances of a GPU instance of so many slices.
func (g goMIG) computes(h nvml.GpuInstance, slicesOfGI int) ([]MIGCompute, error) {
	var list []MIGCompute
	err := g.eachCompute(h, func(p nvml.ComputeInstanceProfileInfo) (bool, error) {
		p.InstanceCount = maxInstances
		handles, err := ask(g.d, "nvmlGpuInstanceGetComputeInstances",
			func() ([]nvml.ComputeInstance, nvml.Return) { return h.GetComputeInstances(&p) })
		for _, c := range handles {
			info, err := ask(g.d, "nvmlComputeInstanceGetInfo_v2", c.GetInfo)
			if err != nil {
				return false, err
			}
			if !slices.ContainsFunc(list, func(m MIGCompute) bool { return m.CI == int(info.Id) }) {
				list = append(list, MIGCompute{int(info.Id), int(p.SliceCount) == slicesOfGI})
			}
		}
		return false, err
	})
	slices.SortFunc(list, func(a, b MIGCompute) int { return cmp.Compare(a.CI, b.CI) })
	return list, err
}

func (g goMIG) migDevices() ([]MIGDevice, error) {
	if mode, err := g.migMode(); err != nil || !mode.Current {
		return nil, err
	}
	most, err := ask(g.d, "nvmlDeviceGetMaxMigDeviceCount", g.dev.GetMaxMigDeviceCount)
	if err != nil {
		return nil, err
	}
	var list []MIGDevice
	for i := range min(most, maxInstances) {
		h, err := ask(g.d, "nvmlDeviceGetMigDeviceHandleByIndex",
			func() (nvml.Device, nvml.Return) { return g.dev.GetMigDeviceHandleByIndex(i) })
		if errors.Is(err, sharing.ErrNotFound) {
			continue // indexes have holes
		}
		if err != nil {
			return nil, err
		}
		gi, err1 := ask(g.d, "nvmlDeviceGetGpuInstanceId", h.GetGpuInstanceId)
		ci, err2 := ask(g.d, "nvmlDeviceGetComputeInstanceId", h.GetComputeInstanceId)
		uuid, err3 := ask(g.d, "nvmlDeviceGetUUID", h.GetUUID)
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, err
		}
		list = append(list, MIGDevice{gi, ci, uuid})
	}
	slices.SortFunc(list, func(a, b MIGDevice) int { return cmp.Or(cmp.Compare(a.GI, b.GI), cmp.Compare(a.CI, b.CI)) })
	return list, nil
}
