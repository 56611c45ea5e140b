// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"

	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

// stage is a line of kitload stages, and what NVML shows at that moment.
type stage struct {
	Stage        string
	Asked        uint64 `json:"asked_bytes"`
	Free         uint64 `json:"free_bytes"`
	GPU          uint64 `json:"nvml_gpu_bytes"`
	Process      uint64 `json:"nvml_process_bytes"`
	Failed, Call string `json:",omitempty"`
}

// memory measures what the driver takes for contexts, modules and families, as NVML and the program see it.
func memory(ctx context.Context, b *bench.Bench) error {
	d, err := b.OpenDriver(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	base, others, err := d.Used(ctx)
	if err != nil {
		return err
	}
	list, err := stages(ctx, b, d, base, others)
	b.SaveJSON("stages.json", list)
	if err != nil {
		return err
	}
	judgeStages(b, list)
	return contexts(ctx, b, d, base)
}

// stages lets kitload go from stage to stage, and reads NVML at each.
func stages(ctx context.Context, b *bench.Bench, d *bench.Driver, base uint64, others map[int]uint64) (list []stage,
	err error) {
	p, err := b.Start(b.Native(), b.Program("kitload"), "stages")
	if err != nil {
		return nil, err
	}
	defer p.End()
	for {
		var at stage
		if err := p.Line(ctx, &at); err != nil {
			if len(list) > 0 && ctx.Err() == nil && errors.Is(err, bench.ErrEnded) {
				return list, nil
			}
			return list, err
		}
		if at.Failed != "" {
			b.Fact("stages ended early", "%s in %s", at.Failed, at.Call)
			return list, nil
		}
		used, processes, err := d.Used(ctx)
		if err != nil {
			return list, err
		}
		at.GPU = used - min(used, base)
		for pid, bytes := range processes {
			if _, other := others[pid]; !other {
				at.Process += bytes
			}
		}
		list = append(list, at)
		b.Fact(at.Stage, "GPU %+.1f MiB, process %.1f MiB", float64(at.GPU)/float64(mib),
			float64(at.Process)/float64(mib))
		p.Next()
	}
}

// judgeStages compares the stages that claims rest on.
func judgeStages(b *bench.Bench, list []stage) {
	at := map[string]stage{}
	for _, s := range list {
		at[s.Stage] = s
	}
	if c, ok := at["context"]; ok {
		b.Add(core.Is("context-listed", c.Process > 0, "process %.1f MiB, GPU %.1f MiB",
			float64(c.Process)/float64(mib), float64(c.GPU)/float64(mib)))
		b.Fact("of a context in no process", "%.1f MiB", (float64(c.GPU)-float64(c.Process))/float64(mib))
	}
	managed, linear := at["managed"], at["linear"]
	if managed.Stage != "" && linear.Stage != "" {
		inProcess := float64(managed.Process) - float64(linear.Process) + float64(gib)
		inGPU := float64(managed.GPU) - float64(linear.GPU) + float64(gib)
		b.Add(core.Is("managed-unlisted", inProcess < 0.5*float64(gib) && inGPU > 0.5*float64(gib),
			"1 GiB of managed memory: %.2f GiB in the process, %.2f GiB in the GPU", inProcess/float64(gib),
			inGPU/float64(gib)))
	}
}

// contexts holds one, four and eight contexts at once.
func contexts(ctx context.Context, b *bench.Bench, d *bench.Driver, base uint64) error {
	var held int
	for _, n := range []int{1, 4, 8} {
		for ; held < n; held++ {
			p, err := b.Start(b.Native(), b.Program("kitload"), "stages", "--count", "1")
			if err != nil {
				return err
			}
			var at stage
			if err := p.Line(ctx, &at); err != nil {
				return fmt.Errorf("context %d: %w", held+1, err)
			}
		}
		used, processes, err := d.Used(ctx)
		if err != nil {
			return err
		}
		sum := uint64(0)
		for _, bytes := range processes {
			sum += bytes
		}
		b.Fact(fmt.Sprintf("%d contexts", n), "GPU %+.1f MiB, processes %.1f MiB",
			(float64(used)-float64(base))/float64(mib), float64(sum)/float64(mib))
	}
	return nil
}
