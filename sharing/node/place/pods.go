// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// InOrder sorts containers that run at the same time first, and among them those with another's cap last. The larger
// init containers follow, so that a later one finds a grant that it may use.
func InOrder(asks []sharing.ContainerRequest) []sharing.ContainerRequest {
	asks = slices.Clone(asks)
	rank := func(a sharing.ContainerRequest) int {
		switch {
		case a.Kind == sharing.ContainerInit:
			return 2
		case a.With != "":
			return 1
		}
		return 0
	}
	slices.SortStableFunc(asks, func(a, b sharing.ContainerRequest) int {
		x, y := a.Request, b.Request
		if a.Kind != sharing.ContainerInit || b.Kind != sharing.ContainerInit {
			return rank(a) - rank(b)
		}
		return cmp.Or(cmp.Compare(y.GPUs, x.GPUs), cmp.Compare(y.Memory, x.Memory), cmp.Compare(y.Percent, x.Percent))
	})
	return asks
}

// Env are the variables of a container that say what its grant has.
func Env(id ledger.GrantID, p sharing.Placement, level sharing.Level) map[string]string {
	memory, percent := p.Total()
	return map[string]string{
		"KERF_GRANT":        string(id),
		"KERF_GPUS":         strings.Join(p.GPUs(), ","),
		"KERF_MEMORY_BYTES": strconv.FormatUint(uint64(memory), 10),
		"KERF_PERCENT":      strconv.FormatUint(uint64(percent), 10),
		"KERF_LEVEL":        level.String(),
	}
}

// PodContainers names every container that has a grant of a pod.
func PodContainers(grants []ledger.Grant) []sharing.ContainerRef {
	var out []sharing.ContainerRef
	for _, g := range grants {
		if o := g.Owner; o.Pod() {
			out = append(out, containerOf(o))
		}
	}
	return out
}

// ContainersOn names, for each GPU, the containers of pods with a share of it.
func ContainersOn(grants []ledger.Grant) map[sharing.GPURef][]sharing.ContainerRef {
	out := map[sharing.GPURef][]sharing.ContainerRef{}
	for _, g := range grants {
		if !g.Owner.Pod() {
			continue
		}
		for _, f := range g.Placement {
			out[f.GPU] = append(out[f.GPU], containerOf(g.Owner))
		}
	}
	return out
}

func containerOf(o ledger.Owner) sharing.ContainerRef {
	return sharing.ContainerRef{PodUID: o.PodUID, Namespace: o.Namespace, Pod: o.PodName, Container: o.Container}
}
