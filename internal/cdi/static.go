// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package cdi is the adapter to the Container Device Interface. Its files map the device names of kubelet and NRI to
// edits for container runtimes.
//
// Kerf's own kinds stand in four files. Guard, ask and near are the same for every container and every day:
// Static makes them of amounts alone. The GPUs' file is made by Derive of the nvidia.com/gpu specs that
// NVIDIA's toolkit writes, which Source reads. InstallHook puts kerf-hook where the guard's hook points.
//
// Promised: a name that was ever written keeps its meaning as long as the file stays, because Install never removes
// an amount. A file is replaced as a whole or not at all, and only if its content differs. Every device node is "rw"
// at most. Every hook has a fixed environment and a timeout. A device of a GPU gives only that GPU's device file.
// Names of Kerf's kinds in files of others are an error (Conflicts), because a container runtime might use them.
//
// Not promised: that a container runtime has read a file when Install returns, and that root never changes a file
// afterwards.
package cdi

import (
	"maps"
	"path"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/hooks/oci/wire"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	createRuntime = "createRuntime"
	// hookName is the program's name, in its path and as its first argument.
	hookName = sharing.HookProgram
	// hookEnv is the whole environment of a hook without one. It must not be empty: then the container runtime would
	// pass on its environment.
	hookEnv = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"

	// numaEnv shows a program the NUMA nodes of its GPUs; nothing reads it. nearEnv is its name in earlier versions.
	numaEnv = "KERF_NUMA"
	nearEnv = "KERF_NEAR"

	// maxAmount bounds each amount, so that a file stays one that container runtimes load in no time.
	maxAmount = 16384
	// maxSocket is the longest path of a unix socket.
	maxSocket = 107
)

// Maxima are the largest amounts that a node can be asked for: the totals over all its GPUs.
type Maxima struct {
	// MemoryGiB is whole GiB, Percent hundredths of a GPU, GPUs whole ones; each 0 to 16384.
	MemoryGiB, Percent, GPUs int
	// NUMANodes is how many NUMA nodes have GPUs with numbers below it, 0 to sharing.MaxNUMA.
	NUMANodes int
	// MIG has the number of instances of each MIG profile, by resource as Ask names it; each 1 to 16384.
	MIG map[string]int
}

// Union is the larger of each amount.
func (m Maxima) Union(o Maxima) Maxima {
	return Maxima{
		MemoryGiB: max(m.MemoryGiB, o.MemoryGiB),
		Percent:   max(m.Percent, o.Percent),
		GPUs:      max(m.GPUs, o.GPUs),
		NUMANodes: max(m.NUMANodes, o.NUMANodes),
		MIG:       larger(m.MIG, o.MIG),
	}
}

// With is m with so many instances more of a MIG profile, by its resource as sharing.MIGResource has it.
func (m Maxima) With(resource string, count int) Maxima {
	name := strings.TrimPrefix(resource, sharing.Domain+"/")
	m.MIG = maps.Clone(m.MIG)
	if m.MIG == nil {
		m.MIG = make(map[string]int)
	}
	m.MIG[name] += count
	return m
}

func larger(a, b map[string]int) map[string]int {
	if len(a) == 0 {
		return maps.Clone(b)
	}
	out := maps.Clone(a)
	for resource, n := range b {
		out[resource] = max(out[resource], n)
	}
	return out
}

// of is the largest amount of a resource as Ask names it.
func (m Maxima) of(resource string) int {
	switch sharing.Domain + "/" + resource {
	case sharing.ResourceMemory:
		return m.MemoryGiB
	case sharing.ResourcePercent:
		return m.Percent
	case sharing.ResourceGPU:
		return m.GPUs
	}
	return m.MIG[resource]
}

// only is that amount of one resource.
func only(a sharing.ResourceRequest) (m Maxima) {
	switch sharing.Domain + "/" + a.Resource {
	case sharing.ResourceMemory:
		m.MemoryGiB = a.Count
	case sharing.ResourcePercent:
		m.Percent = a.Count
	case sharing.ResourceGPU:
		m.GPUs = a.Count
	default:
		m.MIG = map[string]int{a.Resource: a.Count}
	}
	return m
}

// resources are those that asks may name, in their order.
func (m Maxima) resources() []string {
	return append(sharing.RequestResources(), slices.Sorted(maps.Keys(m.MIG))...)
}

func (m Maxima) check() error {
	for _, a := range []struct {
		field      string
		have, most int
	}{
		{"GPU memory of the node in GiB", m.MemoryGiB, maxAmount},
		{"percent of the node", m.Percent, maxAmount},
		{"GPUs of the node", m.GPUs, maxAmount},
		{"NUMA nodes", m.NUMANodes, sharing.MaxNUMA},
	} {
		if a.have < 0 || a.have > a.most {
			return sharing.Invalid(a.field, "", "", "is %d, not 0 to %d", a.have, a.most)
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(m.MIG)) {
		if n := m.MIG[resource]; n < 1 || n > maxAmount || !sharing.IsMIGResource(sharing.Domain+"/"+resource) {
			return sharing.Invalid("MIG instances of the node", resource, "", "are %d, not 1 to %d of a profile", n,
				maxAmount)
		}
	}
	return nil
}

// Hook is how kerf-hook is called.
type Hook struct {
	// Path is the program's path on the host: absolute, clean, and ending in kerf-hook.
	Path string
	// Socket is the agent's socket on the host: absolute and clean.
	Socket string
}

func (h Hook) check() error {
	const remedy = "write an absolute path without . and .. in it"
	if !path.IsAbs(h.Path) || path.Clean(h.Path) != h.Path || path.Base(h.Path) != hookName {
		return sharing.Invalid("path of the hook", h.Path, remedy, "is not a path of "+hookName)
	}
	if !path.IsAbs(h.Socket) || path.Clean(h.Socket) != h.Socket || len(h.Socket) > maxSocket {
		return sharing.Invalid("socket of the hook", h.Socket, remedy, "is not the path of a socket (at most %d bytes)",
			maxSocket)
	}
	return nil
}

// edit is the hook as a container edit, with more arguments behind its own.
func (h Hook) edit(args ...string) *specs.Hook {
	timeout := int(wire.HookTimeout.Seconds())
	return &specs.Hook{
		HookName: createRuntime,
		Path:     h.Path,
		Args:     append([]string{hookName, sharing.HookActivate, "--socket", h.Socket}, args...),
		Env:      []string{hookEnv},
		Timeout:  &timeout,
	}
}

// numaDevice is a device that only shows its name to the program.
func numaDevice(variable, name string) specs.Device {
	return specs.Device{Name: name, ContainerEdits: specs.ContainerEdits{Env: []string{variable + "=" + name}}}
}

// Static makes the specs of guard, ask, numa and near for every amount up to m. A kind without any amount has no
// file. It is pure: the same input gives the same bytes. Errors are *sharing.FieldError.
func Static(m Maxima, h Hook) ([]File, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	if err := h.check(); err != nil {
		return nil, err
	}
	_, activated, _ := strings.Cut(sharing.HookDevice, "=")
	guard := &specs.Spec{Kind: sharing.CDIHook, Devices: []specs.Device{{
		Name: activated, ContainerEdits: specs.ContainerEdits{Hooks: []*specs.Hook{h.edit()}},
	}}}
	ask := &specs.Spec{Kind: sharing.CDIRequest}
	for _, resource := range m.resources() {
		for n := 1; n <= m.of(resource); n++ {
			amount := sharing.ResourceRequest{Resource: resource, Count: n}.String()
			ask.Devices = append(ask.Devices, specs.Device{
				Name: amount, ContainerEdits: specs.ContainerEdits{
					Hooks: []*specs.Hook{h.edit(sharing.HookRequest, amount)}},
			})
		}
	}
	numa, near := &specs.Spec{Kind: sharing.CDINUMA}, &specs.Spec{Kind: sharing.EarlierCDINUMA}
	for node := range m.NUMANodes {
		for n := 1; n <= m.GPUs; n++ {
			amount := sharing.NUMAAffinity{NUMA: node, Count: n}
			numa.Devices = append(numa.Devices, numaDevice(numaEnv, amount.String()))
			near.Devices = append(near.Devices, numaDevice(nearEnv, amount.Former()))
		}
	}
	var files []File
	for _, s := range []*specs.Spec{guard, ask, numa, near} {
		if len(s.Devices) == 0 {
			continue
		}
		f, err := newFile(s)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}
