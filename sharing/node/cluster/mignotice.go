// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/sharing/node/instances"
)

const (
	// reasonReady of a pod: its MIG instance is ready, and the time of its creation.
	reasonReady = "MIGInstanceReady"
	// reasonPending of a pod: its MIG instance does not exist yet, with the reason. Kerf tries again.
	reasonPending = "MIGInstancePending"
)

// tellCut writes an event of the pod about its instance.
func (k *Kubernetes) tellCut(ctx context.Context, n instances.Notice) {
	where := fmt.Sprintf("MIG instance %s of GPU %d", n.Instance, n.GPU.Index)
	switch {
	case n.Err != nil:
		k.api.Event(ctx, n.Container, reasonPending, fmt.Sprintf("Kerf could not create %s and tries again: %v", where,
			n.Err), true)
	case n.Warm:
		k.api.Event(ctx, n.Container, reasonReady, "Kerf assigned the existing "+where+".", false)
	default:
		k.api.Event(ctx, n.Container, reasonReady,
			fmt.Sprintf("Kerf created %s in %s.", where, n.Took.Round(time.Millisecond)), false)
	}
}
