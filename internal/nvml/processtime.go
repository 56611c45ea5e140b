// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// ProcessTime returns what part of the time since then, in percent, each process used of the GPU's multiprocessors, by
// its pid; a process that is missing used none. It is sharing.ErrUnsupported where the driver does not tell (MIG
// mode, old libraries), and sharing.ErrUnavailable where it tells what cannot be.
func (l *Library) ProcessTime(ctx context.Context, id sharing.GPUID, since time.Time) (map[int]int, error) {
	return onGPU(ctx, l, "read processes' use of time", id, func(d device) (map[int]int, error) {
		samples, err := d.processTime(since)
		if err != nil {
			return nil, err
		}
		return meanByProcess(samples, func(s timeSample) int { return s.percent })
	})
}

// timeSample is the part of some period that a process used of a GPU, of its memory, and of its encoder and decoder.
type timeSample struct{ pid, percent, memory, encoder, decoder int }

// meanByProcess is the mean of one part of each process's samples: most drivers give one of each.
func meanByProcess(samples []timeSample, part func(timeSample) int) (map[int]int, error) {
	sum, count := map[int]int{}, map[int]int{}
	for _, s := range samples {
		percent := part(s)
		if percent < 0 || percent > 100 {
			return nil, fmt.Errorf("the driver reports %d percent for process %d: %w", percent, s.pid, sharing.ErrUnavailable)
		}
		if s.pid <= 0 {
			continue // no process: nobody's use
		}
		sum[s.pid] += percent
		count[s.pid]++
	}
	for pid, n := range count {
		sum[pid] /= n
	}
	return sum, nil
}

func (g goDevice) processTime(since time.Time) ([]timeSample, error) {
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
		return nil, nil // both are said where nobody used any
	}
	if !ok {
		r = nvml.ERROR_INSUFFICIENT_SIZE
	}
	if err := check(name, r); err != nil {
		return nil, err
	}
	out := make([]timeSample, 0, len(got))
	for _, s := range got {
		out = append(out, timeSample{pid: int(s.Pid), percent: int(s.SmUtil), memory: int(s.MemUtil), encoder: int(s.EncUtil), decoder: int(s.DecUtil)})
	}
	return out, nil
}

// processUtilization asks how long the list is, and then for the list. go-nvml cuts its buffer to the length that the
// second answer tells, and panics where the list has grown in between: ok is then false.
func processUtilization(dev nvml.Device, since uint64) (got []nvml.ProcessUtilizationSample, r nvml.Return, ok bool) {
	defer func() { _ = recover() }()
	got, r = dev.GetProcessUtilization(since)
	return got, r, true
}
