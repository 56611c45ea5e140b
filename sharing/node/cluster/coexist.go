// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing"
)

// othersEvery is how often kubelet is asked what other device plugins hand out.
const othersEvery = 10 * time.Second

// overlap says which GPUs another device plugin also advertises, and why nothing new is granted on them: two plugins
// do not know each other's pods. A device belongs to a GPU if its ID begins with the GPU's UUID. NVIDIA's plugin
// ("GPU-...", "GPU-...::3") and those based on it ("GPU-...-3") have such IDs. Devices with other IDs are ignored.
func overlap(others map[string][]string, gpus []sharing.GPU) map[sharing.GPUID]string {
	out := map[sharing.GPUID]string{}
	for _, resource := range slices.Sorted(maps.Keys(others)) {
		for _, g := range gpus {
			mine := func(id string) bool { return strings.HasPrefix(id, string(g.UUID)) }
			if _, said := out[g.UUID]; !said && slices.ContainsFunc(others[resource], mine) {
				out[g.UUID] = fmt.Sprintf(
					"another device plugin hands it out as %s; take the GPU, or the node, from one of both", resource)
			}
		}
	}
	return out
}

// followOthers keeps new grants off the GPUs that another device plugin hands out, until ctx ends. The node's other
// GPUs are shared as ever. What cannot be asked changes nothing.
func (k *Kubernetes) followOthers(ctx context.Context) {
	for failed := false; ; {
		others, err := k.kubelet.Others(ctx)
		if errors.Is(err, sharing.ErrUnsupported) {
			k.Log.Warn(
				"failed to read devices of other device plugins from kubelet; keep them off the GPUs of this node",
				"error", err.Error())
			return
		}
		if err != nil && !failed && ctx.Err() == nil {
			k.Log.Warn("failed to read devices of other device plugins from kubelet, will retry", "error",
				err.Error())
		}
		if failed = err != nil; !failed {
			k.cordons.overlap(overlap(others, k.Runtime.Inventory()))
		}
		if !sleep.For(ctx, othersEvery) {
			return
		}
	}
}
