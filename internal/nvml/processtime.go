// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// ProcessTime returns what part of the time since then, in percent, each process used of the GPU's multiprocessors, as
// far as the driver's samples tell. Rows that say nothing of that time are left out, one by one. It is
// sharing.ErrUnsupported where the driver does not tell at all (MIG mode, old libraries).
func (r *Readings) ProcessTime(ctx context.Context, id sharing.GPUID, since time.Time) (sharing.TimeUse, error) {
	return onGPU(ctx, r.driver, "read processes' use of time", id, func(d device) (sharing.TimeUse, error) {
		rows, err := d.processTime(since)
		return sharing.UseOf(rows, since), err
	})
}

// rowOf is one row as the driver has it, of which the time stamp is in microseconds.
func rowOf(pid uint32, at uint64, sm, memory, encoder, decoder uint32) sharing.TimeRow {
	return sharing.TimeRow{
		PID: int(pid), At: time.UnixMicro(int64(min(at, math.MaxInt64))),
		SM: int(sm), Memory: int(memory), Encoder: int(encoder), Decoder: int(decoder),
	}
}

func (g goDevice) processTime(since time.Time) ([]sharing.TimeRow, error) {
	const name = timesList
	if err := g.d.need(name); err != nil {
		return nil, err
	}
	from := uint64(max(0, since.UnixMicro()))
	if list, ok := g.d.lists.processTimes(g.dev, from); ok {
		return list, nil
	}
	got, r, ok := processUtilization(g.dev, from)
	if r == nvml.ERROR_NOT_FOUND || ok && r == nvml.ERROR_INSUFFICIENT_SIZE && len(got) == 0 {
		return nil, nil // both are said where there is no row
	}
	if !ok {
		r = nvml.ERROR_INSUFFICIENT_SIZE
	}
	if err := check(name, r); err != nil {
		return nil, err
	}
	out := make([]sharing.TimeRow, 0, len(got))
	for _, s := range got {
		out = append(out, rowOf(s.Pid, s.TimeStamp, s.SmUtil, s.MemUtil, s.EncUtil, s.DecUtil))
	}
	return out, nil
}

// processUtilization asks for the length of the list, and then for the list. In the second answer, go-nvml truncates
// its buffer to the length, and panics if the list has grown in between. Then ok is false.
func processUtilization(dev nvml.Device, since uint64) (got []nvml.ProcessUtilizationSample, r nvml.Return, ok bool) {
	defer func() { _ = recover() }()
	got, r = dev.GetProcessUtilization(since)
	return got, r, true
}
