// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/internal/cdi"
	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing"
)

// othersEvery is how often the agent reads what other device plugins and DRA drivers hand out.
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

// claimedBy adds the GPUs that another DRA driver has prepared for pods, and why nothing new is granted on them.
func claimedBy(others []cdi.Claimed, gpus []sharing.GPU, out map[sharing.GPUID]string) {
	for _, c := range others {
		for _, g := range gpus {
			if _, said := out[g.UUID]; !said && c.Gives(g) {
				out[g.UUID] = fmt.Sprintf("another DRA driver has given it to a pod as %s; end the pod, or "+
					"take the GPU, "+
					"or the node, from one of both", c.Kind)
			}
		}
	}
}

// followOthers keeps new grants off the GPUs that another device plugin hands out, or another DRA driver has prepared,
// until ctx ends. The node's other GPUs are shared as ever. What cannot be read changes nothing.
func (k *Kubernetes) followOthers(ctx context.Context) {
	dirs := filepath.SplitList(k.Options.Containers.CDISources)
	for failed, plugins := false, true; ; {
		others, err := map[string][]string(nil), error(nil)
		if plugins {
			others, err = k.kubelet.Others(ctx)
		}
		if errors.Is(err, sharing.ErrUnsupported) {
			plugins = false
			k.Log.Warn(
				"failed to read devices of other device plugins from kubelet; keep them off the GPUs of this node",
				"error", err.Error())
			err = nil
		}
		claimed, unread := cdi.ClaimedByOthers(dirs)
		if err = errors.Join(err, unread); err != nil && !failed && ctx.Err() == nil {
			k.Log.Warn("failed to read what other drivers hand out, will retry", "error", err.Error())
		}
		if failed = err != nil; !failed {
			gpus := k.Runtime.Inventory()
			all := overlap(others, gpus)
			claimedBy(claimed, gpus, all)
			k.cordons.overlap(all)
		}
		if !sleep.For(ctx, othersEvery) {
			return
		}
	}
}
