// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/internal/kube"
	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

// followLeaving stops new grants while the node has a taint that announces its removal. The pool names such taints.
func (k *Kubernetes) followLeaving(ctx context.Context) {
	for ctx.Err() == nil {
		changed := k.Runtime.Changed()
		keys := k.Runtime.Settings().Pool().Health.TerminationTaints
		if len(keys) == 0 {
			k.Runtime.SetLeaving(ctx, "")
			k.Runtime.Conditions.Set(conditions.LeavingUnknown, "")
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		k.followTaints(ctx, keys)
	}
}

// followTaints returns when the pool names other taints.
func (k *Kubernetes) followTaints(ctx context.Context, keys []string) {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.api.WatchNode(ctx, func(taints []string, err error) { k.seeTaints(ctx, keys, taints, err) })
	}()
	defer func() { stop(); <-done }()
	for {
		changed := k.Runtime.Changed()
		if !slices.Equal(keys, k.Runtime.Settings().Pool().Health.TerminationTaints) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// seeTaints takes the node's taints. While they cannot be read, what was known of them stays.
func (k *Kubernetes) seeTaints(ctx context.Context, keys, taints []string, err error) {
	if err != nil {
		k.Runtime.Conditions.Set(conditions.LeavingUnknown,
			"the node's taints (health.terminationTaints) cannot be read: "+
				err.Error())
		return
	}
	k.Runtime.Conditions.Set(conditions.LeavingUnknown, "")
	k.Runtime.SetLeaving(ctx, leaving(keys, taints))
}

// leaving is the reason why the node terminates, empty if it does not.
func leaving(keys, taints []string) string {
	for _, t := range taints {
		if slices.Contains(keys, t) {
			return fmt.Sprintf("the node has the taint %s and terminates soon; it gives no new grants: save your "+
				"data", t)
		}
	}
	return ""
}

// markNode keeps condition and taint of the node's object as the pool wants them.
func (k *Kubernetes) markNode(ctx context.Context) {
	failures, wait := teller{log: k.Log, what: "node"}, publishRetry
	var last kube.NodeMark
	for written := false; ctx.Err() == nil; {
		changed := k.Runtime.Changed()
		mode := k.Runtime.Settings().Pool().Health.Node
		mark := markOf(mode, k.Runtime.Inventory())
		if mode == config.NodeMarkNone && !written || written && mark == last {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
			continue
		}
		err := k.api.MarkNode(ctx, mark)
		failures.tell(ctx, err)
		text := ""
		if err != nil {
			text = "the node's object does not show how its GPUs are (health.nodeSignal): " + err.Error()
		}
		k.Runtime.Conditions.Set(conditions.NodeMark, text)
		if err != nil {
			if !sleep.For(ctx, wait) {
				return
			}
			wait = min(2*wait, publishLast)
			continue
		}
		last, written, wait = mark, mode != config.NodeMarkNone, publishRetry
		if !sleep.For(ctx, publishPause) {
			return
		}
	}
}

// markOf is what the node's object is to show.
func markOf(mode config.NodeMark, gpus []sharing.GPU) kube.NodeMark {
	if mode == config.NodeMarkNone {
		return kube.NodeMark{Clear: true}
	}
	m := kube.NodeMark{Healthy: true, Reason: "AllHealthy", Message: "no GPU of the node is known to be faulty"}
	var bad []string
	for _, g := range gpus {
		if g.Health == sharing.HealthOK || g.Health == sharing.HealthUnknown && g.HealthReason == "" {
			continue
		}
		bad = append(bad, fmt.Sprintf("GPU %d (%s) is %s: %s", g.Index, g.Ref(), g.Health, g.HealthReason))
		faulty := g.Health != sharing.HealthSuspect
		m.Taint = m.Taint || faulty && mode == config.NodeMarkTaint
	}
	if len(bad) > 0 {
		m.Healthy, m.Reason, m.Message = false, "GPUUnhealthy", strings.Join(bad, "; ")
	}
	return m
}
