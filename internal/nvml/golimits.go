// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// The functions of the memory limits, which drivers have from r615 on.
const (
	setLimitsFunc = "nvmlDeviceSetMemoryLimits_v1"
	getLimitsFunc = "nvmlDeviceGetMemoryLimits_v1"
)

func (d *goDoor) hasLimits() bool {
	return d.need(setLimitsFunc) == nil && d.need(getLimitsFunc) == nil
}

func (g goDevice) setLimit(dir string, soft, hard sharing.Bytes) error {
	if err := g.d.need(setLimitsFunc); err != nil {
		return err
	}
	return check(setLimitsFunc, g.dev.SetMemoryLimits_v1(dir, uint64(soft), uint64(hard)))
}

func (g goDevice) limit(dir string) (Limit, error) {
	if err := g.d.need(getLimitsFunc); err != nil {
		return Limit{}, err
	}
	got, r := g.dev.GetMemoryLimits_v1(dir)
	if err := check(getLimitsFunc, r); err != nil {
		return Limit{}, err
	}
	return Limit{Soft: sharing.Bytes(got.SoftLimit), Hard: sharing.Bytes(got.HardLimit), Used: sharing.Bytes(got.CurrentUsed)}, nil
}

// ofLimits is what a code of the memory limits' functions means, by nvml.h of NVML 13.4; ok is false for a code that means
// there what it means elsewhere.
func ofLimits(function string, code nvml.Return) (text string, ok bool, word error) {
	set := function == setLimitsFunc
	switch {
	case !set && function != getLimitsFunc:
	case code == nvml.ERROR_OPERATING_SYSTEM:
		return "the cgroup cannot be opened", true, sharing.ErrUnavailable
	case set && code == nvml.ERROR_INVALID_ARGUMENT:
		return "a limit is above the GPU's memory, or the soft limit is above the hard limit", true, sharing.ErrInvalid
	case set && code == nvml.ERROR_NOT_SUPPORTED:
		return "this GPU or cgroup takes no memory limit", true, sharing.ErrUnsupported
	case !set && code == nvml.ERROR_NOT_FOUND:
		return "this cgroup has no memory limit on this GPU", true, sharing.ErrNotFound
	case !set && code == nvml.ERROR_NOT_SUPPORTED:
		// The kernel module of r615 (memacct.c) also says so of a cgroup without a limit.
		return "this GPU has no memory limits, or this cgroup has none on it", true, sharing.ErrUnsupported
	}
	return "", false, nil
}
