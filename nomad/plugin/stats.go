// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"time"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/structs"

	"github.com/kerf-gpu/kerf/nomad/shares"
)

// Stats sends the used memory of each GPU at every interval until ctx ends. All devices of a GPU have the same value.
func (p *Plugin) Stats(ctx context.Context, interval time.Duration) (<-chan *device.StatsResponse, error) {
	out := make(chan *device.StatsResponse)
	go func() {
		defer close(out)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for now := time.Now(); ; {
			select {
			case out <- &device.StatsResponse{Groups: usage(p.known(), now)}:
			case <-ctx.Done():
				return
			}
			select {
			case now = <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// usage is the used memory of each GPU, in Nomad's form.
func usage(n shares.Node, now time.Time) []*device.DeviceGroupStats {
	var out []*device.DeviceGroupStats
	for _, g := range n.GPUs {
		value := usedMemory(g)
		stats := &device.DeviceStats{Summary: value, Timestamp: now,
			Stats: &structs.StatObject{Attributes: map[string]*structs.StatValue{"memory": value}}}
		group := &device.DeviceGroupStats{Vendor: vendor, Type: device.DeviceTypeGPU, Name: g.UUID,
			InstanceStats: map[string]*device.DeviceStats{}}
		for _, id := range g.IDs() {
			group.InstanceStats[id] = stats
		}
		out = append(out, group)
	}
	return out
}

// usedMemory is the used memory of a GPU of its capacity, or "unknown".
func usedMemory(g shares.GPU) *structs.StatValue {
	v := &structs.StatValue{Desc: "Used memory of the GPU"}
	if g.UsedBytes == nil || g.CapacityBytes == nil {
		v.StringVal = new("unknown")
		return v
	}
	v.Unit = "MiB"
	v.IntNumeratorVal = new(int64(*g.UsedBytes >> 20))
	v.IntDenominatorVal = new(int64(*g.CapacityBytes >> 20))
	return v
}
