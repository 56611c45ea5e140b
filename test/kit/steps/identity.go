// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

// info is what kitload tells of the GPU.
type info struct {
	CUDA       int
	Name       string
	Processors int
	PTX        string
	JIT        float64 `json:"jit_ns"`
	Kernels    bool
	Total      uint64 `json:"total_bytes"`
}

// identity finds the machine: its rights, its driver, one GPU, and what the other steps cannot have here.
func identity(ctx context.Context, b *bench.Bench) error {
	m := bench.Machine{Facts: bench.Host(), Lacks: map[core.Need]string{core.NeedAgent: bench.AgentLacks(),
		core.NeedMPS: bench.MPSLacks()}}
	found := func(name, format string, args ...any) {
		m.Facts = append(m.Facts, core.Fact{Name: name, Value: fmt.Sprintf(format, args...)})
	}
	rawFacts(ctx, b)
	if err := driverFacts(ctx, b, &m, found); err != nil {
		m.Lacks[core.NeedGPU] = "no GPU: " + err.Error()
		return b.Found(m)
	}
	b.Machine = m
	var i info
	if err := b.Run(ctx, b.Native().With("native", "CUDA_VISIBLE_DEVICES="+m.UUID), &i, "info"); err != nil {
		m.Lacks[core.NeedGPU] = "CUDA does not work: " + err.Error()
		return b.Found(m)
	}
	found("CUDA", "%d.%d", i.CUDA/1000, i.CUDA%1000/10)
	found("multiprocessors", "%d", i.Processors)
	found("PTX", "%s, compiled in %.1f ms", i.PTX, i.JIT/1e6)
	found("kernels change memory", "%t", i.Kernels)
	m.Total = i.Total
	switch {
	case m.Simulated:
		m.Lacks[core.NeedKernels] = "the simulated driver executes no kernels and has no real timing"
	case !i.Kernels:
		m.Lacks[core.NeedKernels] = "a kernel ran without an error and changed no memory"
	}
	return b.Found(m)
}

// rawFacts keeps what other tools and the kernel say, for people.
func rawFacts(ctx context.Context, b *bench.Bench) {
	for _, c := range [][]string{{"nvidia-smi", "-q"}, {b.Program("kerf"), "doctor", "-o", "json"}, {"uname", "-a"}} {
		if text, _, err := b.Output(ctx, b.Native(), c[0], c[1:]...); err == nil {
			b.Save(strings.ReplaceAll(c[0][strings.LastIndexByte(c[0], '/')+1:], " ", "-")+".txt", []byte(text))
		}
	}
	for _, file := range []string{"mountinfo", "cgroup", "status", "limits"} {
		if data, err := os.ReadFile("/proc/self/" + file); err == nil {
			b.Save("proc-"+file, data)
		}
	}
}

// driverFacts opens NVML and chooses the GPU with the least used memory.
func driverFacts(ctx context.Context, b *bench.Bench, m *bench.Machine,
	found func(name, format string, args ...any)) error {
	d, err := b.OpenDriver(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	gpus, left, err := d.GPUs(ctx)
	if err != nil {
		return err
	}
	if len(gpus) == 0 {
		return fmt.Errorf("NVML lists none that can be used (%d left out)", len(left))
	}
	m.Simulated = d.Simulated()
	best, least := gpus[0], sharing.Bytes(1<<62)
	for _, g := range gpus {
		var memory nvml.Memory
		if memory, err = d.Memory(ctx, g.UUID); err == nil && memory.Used < least {
			best, least = g, memory.Used
		}
	}
	m.UUID = string(best.UUID)
	found("driver", "%s", d.System().DriverVersion)
	found("NVML", "%s", d.System().NVMLVersion)
	found("memory limits of cgroups", "%t", d.HasMemoryLimits())
	found("GPUs", "%d", len(gpus))
	found("GPU", "%s", best.Model)
	found("used memory before", "%.1f MiB", float64(least)/float64(mib))
	return nil
}
