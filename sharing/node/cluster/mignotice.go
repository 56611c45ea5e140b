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
	// reasonCut of a pod: its MIG instance is ready, and the time of its creation.
	reasonCut = "MIGInstanceReady"
	// reasonUncut of a pod: its MIG instance is not there yet, and why; it is tried again.
	reasonUncut = "MIGInstanceWaits"
)

// tellCut says in the pod's events what became of its instance.
func (k *Kubernetes) tellCut(ctx context.Context, n instances.Notice) {
	where := fmt.Sprintf("MIG instance %s of GPU %d", n.Instance, n.GPU.Index)
	switch {
	case n.Err != nil:
		k.api.Event(ctx, n.Container, reasonUncut, fmt.Sprintf("%s is not there yet, and it is tried again: %v", where, n.Err), true)
	case n.Warm:
		k.api.Event(ctx, n.Container, reasonCut, where+" was there, and free", false)
	default:
		k.api.Event(ctx, n.Container, reasonCut, fmt.Sprintf("%s was cut in %s", where, n.Took.Round(time.Millisecond)), false)
	}
}
