// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// lookEvery is the time between two reads of the GPUNode while the command waits.
const lookEvery = time.Second

// podGrant is the grant of a container, and its node.
type podGrant struct {
	gpunode.Grant

	node string
}

func (g podGrant) label() string { return g.Namespace + "/" + g.Pod + "/" + g.Container }

// memory is the total over the GPUs.
func (g podGrant) memory() (sum sharing.Bytes) {
	for _, s := range g.Shares {
		sum += sharing.Bytes(max(s.MemoryBytes, 0))
	}
	return sum
}

// inCluster changes the memory of a running container, and waits until its agent has done so.
func inCluster(parent context.Context, a *command.App, name string, memory sharing.Bytes,
	timeout time.Duration) error {
	if memory%sharing.GiB != 0 {
		return command.Misused(sharing.Invalid("--memory", memory.String(), "write whole GiB, such as 12GiB",
			"is no whole number of GiB"))
	}
	api, err := a.Cluster()
	if err != nil {
		return command.Fail(err)
	}
	defer api.Close()
	return command.Interruptible(parent, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		p, err := command.Reported(ctx, api, time.Now())
		if err != nil {
			return command.Fail(err)
		}
		g, err := inNodes(p, name)
		if err != nil {
			return command.Fail(err)
		}
		err = command.ChangeSpec(ctx, api, g.node, "kerf-resize", func(o gpunode.Object) gpunode.Spec {
			return o.Spec.Resized(gpunode.GrantMemory{PodUID: g.PodUID, Container: g.Container, Namespace: g.Namespace,
				Pod: g.Pod, MemoryGiB: int64(memory / sharing.GiB)}, o.Status) //nolint:gosec // of a GPU
		})
		if err == nil {
			err = awaitMemory(ctx, api, g, memory)
		}
		if err != nil {
			return command.Fail(err)
		}
		_, err = fmt.Fprintf(a.Out, "%s: %s, was %s\n", g.label(), memory, g.memory())
		return command.Fail(err)
	})
}

// inNodes finds the grant of a container by its ID, or by namespace/pod/container.
func inNodes(p present.Cluster, name string) (podGrant, error) {
	var found []podGrant
	for _, n := range p.Nodes {
		for _, c := range n.Grants {
			if g := (podGrant{c, n.Name}); g.PodUID != "" && (g.ID == name || g.label() == name) {
				found = append(found, g)
			}
		}
	}
	switch len(found) {
	case 0:
		return podGrant{}, fmt.Errorf("grant %q: no node reports a grant of such a container; "+
			"write namespace/pod/container; a grant is reported some seconds after its container started: %w", name,
			sharing.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return podGrant{}, fmt.Errorf("%d grants are called %q: name one by its ID (kubectl kerf status -o json): %w",
		len(found), name, sharing.ErrConflict)
}

// awaitMemory waits until the status has the memory.
func awaitMemory(ctx context.Context, api *access.Client, g podGrant, memory sharing.Bytes) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		var o gpunode.Object
		err := api.Get(ctx, command.GPUNodePath(g.node), nil, &o)
		for _, c := range o.Status.Grants {
			if now := (podGrant{c, g.node}); c.ID == g.ID && now.memory() == memory {
				return nil
			}
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, sharing.ErrUnavailable) {
			return fmt.Errorf("read gpunode %s: %w", g.node, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s still has %s; the reason is in the events of pod %s/%s (GPUMemoryResizeFailed): %w",
				g.label(), g.memory(), g.Namespace, g.Pod, sharing.ErrUnavailable)
		case <-tick.C:
		}
	}
}
