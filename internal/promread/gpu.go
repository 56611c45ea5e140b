// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package promread

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/kerf-gpu/kerf/sharing"
)

// pointsOfGPU is about how many moments of a GPU are read.
const pointsOfGPU = 120

// Point is what was measured on a GPU at a moment: used memory in bytes, utilization in percent. Nil is unknown.
type Point struct {
	Time        time.Time
	Memory      *float64
	Utilization *float64
}

// GPU reads the usage of one GPU over time. Errors: sharing.ErrUnavailable, sharing.ErrInvalid.
func (s Source) GPU(ctx context.Context, uuid string, now time.Time, since time.Duration) ([]Point, error) {
	if _, err := sharing.ParseGPURef(uuid); err != nil {
		return nil, fmt.Errorf("read the usage of a GPU: %w", err)
	}
	step := max((since / pointsOfGPU).Truncate(time.Second), shortestStep)
	points := map[int64]*Point{}
	for _, v := range []struct {
		query string
		put   func(*Point, float64)
	}{
		{fmt.Sprintf("max(kerf_gpu_memory_used_bytes{gpu_uuid=%q})", uuid),
			func(p *Point, v float64) { p.Memory = &v }},
		{fmt.Sprintf("100 * max(kerf_gpu_sm_ratio{gpu_uuid=%q})", uuid),
			func(p *Point, v float64) { p.Utilization = &v }},
	} {
		rows, err := s.between(ctx, v.query, now.Add(-since), now, step)
		if err != nil {
			return nil, err
		}
		putAll(points, rows, v.put)
	}
	out := make([]Point, 0, len(points))
	for _, p := range points {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Point) int { return a.Time.Compare(b.Time) })
	return out, nil
}

func putAll(points map[int64]*Point, rows model.Matrix, put func(*Point, float64)) {
	for _, r := range rows {
		for _, v := range r.Values {
			x := float64(v.Value)
			if !(x >= 0) || math.IsInf(x, 1) {
				continue // what is no number is not known
			}
			at := v.Timestamp.Time()
			if points[at.Unix()] == nil {
				points[at.Unix()] = &Point{Time: at}
			}
			put(points[at.Unix()], x)
		}
	}
}
