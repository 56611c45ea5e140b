// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// Signs are a GPU's health values. Unknown ones are nil.
type Signs struct {
	// Uncorrected counts memory errors since the driver was loaded that could not be corrected.
	Uncorrected *uint64
	// RemapPending: a row is remapped at the next reset. RemapFailed: it cannot be.
	RemapPending, RemapFailed *bool
	// ThermalSlowdown and PowerBrake: the hardware slows itself down, for its heat or because its power supply says so.
	ThermalSlowdown, PowerBrake *bool
	// Links counts the NVLinks that are up; nil for a GPU without any.
	Links *uint64
}

// signer is a device with health values, which not every adapter has. They are without the links, which it counts
// apart: that takes a call for each.
type signer interface {
	signs() Signs
	linksUp() *uint64
}

// linksEvery is how old the count of a GPU's NVLinks may be. All other calls on the GPU wait while they are counted.
const linksEvery = 3 * time.Second

// linkCount is how many NVLinks of a GPU were up at a time.
type linkCount struct {
	at time.Time
	up *uint64
}

// linkCounts keeps the counts of all GPUs.
type linkCounts struct {
	mu   sync.Mutex
	last map[sharing.GPUID]linkCount
}

// of returns a GPU's count. The calls for one GPU come one after the other.
func (c *linkCounts) of(id sharing.GPUID, count func() *uint64) *uint64 {
	c.mu.Lock()
	last, known := c.last[id]
	c.mu.Unlock()
	if known && time.Since(last.at) < linksEvery {
		return last.up
	}
	last = linkCount{at: time.Now(), up: count()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = map[sharing.GPUID]linkCount{}
	}
	c.last[id] = last
	return last.up
}

// Signs reads a GPU's health values. Links is at most three seconds old.
func (r *Readings) Signs(ctx context.Context, id sharing.GPUID) (Signs, error) {
	return onGPU(ctx, r.driver, "read signs of health", id, func(d device) (Signs, error) {
		s, ok := d.(signer)
		if !ok {
			return Signs{}, absent("nvmlDeviceGetTotalEccErrors")
		}
		signs := s.signs()
		signs.Links = r.links.of(id, s.linksUp)
		return signs, nil
	})
}

// Power is what the GPU takes now, in milliwatts. It is sharing.ErrUnsupported where it does not tell.
func (r *Readings) Power(ctx context.Context, id sharing.GPUID) (uint64, error) {
	return onGPU(ctx, r.driver, "read power", id, func(d device) (uint64, error) {
		if s, ok := d.(senses); ok {
			if mw, ok := s.sensors(func(x Sensor) bool { return x == SensorPower })[SensorPower]; ok {
				return mw, nil
			}
		}
		return 0, absent("nvmlDeviceGetPowerUsage")
	})
}

// signs asks for each; what fails is left out. The library is asked for a function before it is called.
func (g goDevice) signs() Signs {
	var s Signs
	has := func(name string) bool { return g.d.need(name) == nil }
	if has("nvmlDeviceGetTotalEccErrors") {
		if n, r := g.dev.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); r == nvml.SUCCESS {
			s.Uncorrected = &n
		}
	}
	if has("nvmlDeviceGetRemappedRows") {
		if _, _, pending, failed, r := g.dev.GetRemappedRows(); r == nvml.SUCCESS {
			s.RemapPending, s.RemapFailed = &pending, &failed
		}
	}
	if has("nvmlDeviceGetCurrentClocksEventReasons") {
		if bits, r := g.dev.GetCurrentClocksEventReasons(); r == nvml.SUCCESS {
			hot, brake := bits&nvml.ClocksThrottleReasonHwThermalSlowdown != 0,
				bits&nvml.ClocksThrottleReasonHwPowerBrakeSlowdown != 0
			s.ThermalSlowdown, s.PowerBrake = &hot, &brake
		}
	}
	return s
}

// linksUp counts the NVLinks that are up, nil if there are none or they are unknown.
func (g goDevice) linksUp() *uint64 {
	if g.d.need("nvmlDeviceGetNvLinkState") != nil {
		return nil
	}
	var up *uint64
	for i := range maxLinks {
		state, r := g.dev.GetNvLinkState(i)
		if r == nvml.ERROR_INVALID_ARGUMENT || r == nvml.ERROR_NOT_SUPPORTED {
			break // past the last link, or none
		}
		if r != nvml.SUCCESS {
			return nil
		}
		if up == nil {
			up = new(uint64)
		}
		if state == nvml.FEATURE_ENABLED {
			*up++
		}
	}
	return up
}
