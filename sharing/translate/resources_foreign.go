// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// NVIDIA's resources.
const (
	nvidiaGPU    = "nvidia.com/gpu"
	nvidiaShared = "nvidia.com/gpu.shared"
	nvidiaMIG    = "nvidia.com/mig-"
)

// migReplica ends the name of a replica of a MIG instance.
const migReplica = ".shared"

// dialect are the resources of a tool that asks for so many GPUs with so much of each.
type dialect struct {
	tool string
	// number counts GPUs; memory is MiB of each, memoryPercent percent of each one's memory, and cores percent of its
	// compute.
	number, memory, memoryPercent, cores string
	// priority orders the kernels of those who share a GPU; empty where there is no such thing.
	priority string
}

// dialects are those that are known.
func dialects() []dialect { return []dialect{hami(), volcano()} }

func hami() dialect {
	return dialect{
		tool: "HAMi", number: nvidiaGPU, memory: "nvidia.com/gpumem", memoryPercent: "nvidia.com/gpumem-percentage",
		cores:    "nvidia.com/gpucores",
		priority: "nvidia.com/priority",
	}
}

func volcano() dialect {
	return dialect{
		tool: "Volcano", number: "volcano.sh/vgpu-number", memory: "volcano.sh/vgpu-memory",
		memoryPercent: "volcano.sh/vgpu-memory-percentage", cores: "volcano.sh/vgpu-cores",
	}
}

// dialectOf is the tool whose resource this is; a number of NVIDIA's GPUs alone belongs to no tool.
func dialectOf(resource string) (dialect, bool) {
	for _, d := range dialects() {
		switch resource {
		case nvidiaGPU, "":
		case d.number, d.memory, d.memoryPercent, d.cores, d.priority:
			return d, true
		}
	}
	return dialect{}, false
}

// nvidia translates a resource of NVIDIA's device plugin.
func (t *translation) nvidia(at, name string, c Container) {
	value := c.Limits[name]
	n, err := strconv.Atoi(value)
	switch profile, mig := strings.CutPrefix(name, nvidiaMIG); {
	case err != nil || n < 1 || n > sharing.MaxGPUs:
		t.refuse(at+": "+name, value, fmt.Sprintf("write 1 to %d", sharing.MaxGPUs), "is not a number of GPUs")
	case mig && strings.HasSuffix(profile, migReplica):
		t.refuse(at+": "+name, value, "write "+strings.TrimSuffix(name, migReplica),
			"has no counterpart: it is one of the replicas of a MIG instance, and Kerf does not share instances")
	case mig && !sharing.IsMIGResource(sharing.Domain+"/mig-"+profile):
		t.refuse(at+": "+name, "", "write a profile as in nvidia.com/mig-1g.10gb", "is not the name of a MIG profile")
	case mig && n > 1:
		t.refuse(at+": "+name, value, "use as many containers",
			"has no counterpart: a container has one MIG instance, since a program uses one at a time")
	case mig:
		t.out.Limits[c.Name] = map[string]string{sharing.Domain + "/mig-" + profile: "1"}
	case name == nvidiaGPU && t.options.MIGSingle != "" && n > 1:
		t.refuse(at+": "+name, value, "use as many containers",
			"has no counterpart with MIG strategy single: a container has one MIG instance")
	case name == nvidiaGPU && t.options.MIGSingle != "":
		t.give(c.Name, sharing.Request{Kind: sharing.KindMIG, MIG: t.options.MIGSingle, GPUs: 1})
	case name == nvidiaGPU && !t.options.SharedByName:
		t.give(c.Name, sharing.Request{Kind: sharing.KindWhole, GPUs: n})
	case t.options.Replicas < 1 || t.options.Replicas > int(sharing.FullGPU):
		t.refuse(at+": "+name, value, "say how many replicas there were of a GPU (--replicas)",
			"says no size: it is one of the replicas of a GPU")
	case n > 1:
		t.refuse(at+": "+name, value, "write 1", "has no counterpart: several replicas were no more of a GPU than one")
	default:
		p := sharing.FullGPU / sharing.Percent(t.options.Replicas)
		t.say("container %s: one of %d replicas of a GPU is %d percent of its memory and compute, and held to it",
			c.Name, t.options.Replicas, p)
		t.give(c.Name, sharing.Request{Percent: p, GPUs: 1})
	}
}

// maxMiB is more memory than any GPU has: 16 TiB.
const maxMiB = 1 << 24

// dialect translates so many GPUs with so much of each.
func (t *translation) dialect(at string, d dialect, c Container) {
	amount := func(name string, most, none uint64) uint64 {
		text, given := c.Limits[name]
		if name == "" || !given {
			return none
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n > most {
			t.refuse(at+": "+name, text, fmt.Sprintf("write a whole number up to %d", most), "is not an amount")
			return none
		}
		return n
	}
	before := len(t.errs)
	gpus := amount(d.number, sharing.MaxGPUs, 1)
	memory := amount(d.memory, maxMiB, 0)
	share, cores := amount(d.memoryPercent, 100, 0), amount(d.cores, 100, 0)
	if priority := amount(d.priority, 1, 0); priority == 1 {
		t.refuse(at+": "+d.priority, "1", "leave it out, or give the container a profile of low priority",
			"has no counterpart that a pod may write: priorities come from profiles")
	}
	if memory *= uint64(max(1, t.options.MemoryFactor)); memory > maxMiB {
		t.refuse(at+": "+d.memory, c.Limits[d.memory], "use a smaller --memory-factor", "is more than any GPU has")
	}
	if len(t.errs) > before {
		return
	}
	r := sharing.Request{GPUs: int(gpus)} //nolint:gosec // at most MaxGPUs
	switch {
	case gpus == 0:
		t.refuse(at+": "+d.number, "0", "leave the GPU's resources out, or write 1",
			"requests a part of a GPU, and no GPU")
		return
	case memory > 0 && share > 0:
		t.refuse(at+": "+d.memoryPercent, strconv.FormatUint(share, 10), "leave out one of them",
			"cannot be given together with %s", d.memory)
		return
	case memory > 0:
		r.Memory = sharing.Bytes(memory) * sharing.MiB * sharing.Bytes(gpus)
		r.Percent = sharing.Percent(cores * gpus) //nolint:gosec // at most 100 times MaxGPUs
	case share == 100 && (cores == 0 || cores == 100), share == 0 && (cores == 0 || cores == 100):
		r.Kind = sharing.KindWhole
		t.say("container %s: all memory of a GPU is a whole GPU, which no other grant uses", c.Name)
	case share == 0:
		t.refuse(at+": "+d.cores, strconv.FormatUint(cores, 10), "say how much memory, with "+d.memory,
			"has no counterpart alone: it requests all memory of a GPU, and a part of its compute")
		return
	case cores != 0 && cores != share:
		t.refuse(at+": "+d.cores, strconv.FormatUint(cores, 10), "say the memory in MiB, with "+d.memory,
			"has no counterpart with %s %d: one percentage is of memory and compute alike", d.memoryPercent, share)
		return
	default:
		r.Percent = sharing.Percent(share * gpus) //nolint:gosec // at most 100 times MaxGPUs
		if cores == 0 {
			t.say("container %s: %d percent of a GPU's memory brings that share of its compute", c.Name, share)
		}
	}
	t.give(c.Name, r)
}
