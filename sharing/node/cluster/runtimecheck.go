// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/internal/containerd"
	"github.com/kerf-gpu/kerf/internal/kube"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

const (
	// runtimeEvery is how often the container runtime's config is checked again: it changes by a restart.
	runtimeEvery = 10 * time.Second
	// crossCheckEvery is how often containerd's list is compared with the ledger even without an event.
	crossCheckEvery = 30 * time.Second
	runtimeDeadline = 10 * time.Second
)

// judgeRuntime reports problems of the container runtime that prevent pods with grants, until ctx ends. It checks a
// restarted runtime at once.
func (k *Kubernetes) judgeRuntime(ctx context.Context) error {
	t := time.NewTicker(runtimeEvery)
	defer t.Stop()
	for {
		k.judgeOnce(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-k.restarted:
		case <-t.C:
		}
	}
}

// judgeOnce sets one condition for each problem, and takes back those that have gone. A runtime that does not
// answer keeps the last judgement; before the first there is none, and NRI is not connected either.
func (k *Kubernetes) judgeOnce(ctx context.Context) {
	ask, cancel := context.WithTimeout(ctx, runtimeDeadline)
	defer cancel()
	report, err := k.runtimeDoor.Report(ask)
	if err != nil {
		if ctx.Err() == nil {
			k.Runtime.Conditions.Set(conditions.RuntimeConfig,
				"the container runtime does not tell of its configuration: "+err.Error())
		}
		return
	}
	k.Runtime.Conditions.Set(conditions.RuntimeConfig, "")
	blocking, warning := map[string]string{}, map[string]string{}
	for _, p := range containerd.Verdict(report, containerd.ReadToolkit(k.Options.Cluster.ToolkitConfig),
		k.Options.Containers.CDI) {
		if p.Blocking {
			blocking[p.Key] = p.String()
		} else {
			warning[p.Key] = p.String()
		}
	}
	k.Runtime.Conditions.Replace(conditions.ContainerRuntime, blocking)
	k.Runtime.Conditions.Replace(conditions.RuntimeProblem, warning)
}

// followRuntime is the second source besides NRI: containerd's events of ended containers, and its list of
// containers.
func (k *Kubernetes) followRuntime(ctx context.Context) error {
	err := k.runtimeDoor.Events(ctx, func(e containerd.Event) {
		if e.Kind != containerd.EventConnected {
			k.Runtime.ContainerRemoved(e.ContainerID)
			return
		}
		select {
		case k.restarted <- struct{}{}:
		default: // it is about to be judged
		}
		k.crossCheck(ctx)
	})
	if errors.Is(err, sharing.ErrUnsupported) || errors.Is(err, sharing.ErrInvalid) {
		k.Runtime.Conditions.Set(conditions.SecondSource, "the container runtime reports no exits except through NRI: "+
			err.Error())
		return nil
	}
	return err
}

// crossCheckLoop compares now and then.
func (k *Kubernetes) crossCheckLoop(ctx context.Context) error {
	t := time.NewTicker(crossCheckEvery)
	defer t.Stop()
	var missing map[string]bool
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			k.crossCheck(ctx)
			missing = k.forgetStatic(ctx, missing)
		}
	}
}

// forgetStatic ends the grants of static pods that the container runtime has forgotten. When kubelet no longer gets a
// static pod, the API server may not report it. The last call returned missing, the pods that the container runtime did
// not have.
func (k *Kubernetes) forgetStatic(ctx context.Context, missing map[string]bool) map[string]bool {
	grants := k.Runtime.PodGrants()
	if !slices.ContainsFunc(grants, func(ref sharing.ContainerRef) bool { return kube.IsStatic(ref.PodUID) }) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeDeadline)
	defer cancel()
	there, err := k.runtimeDoor.Pods(ctx)
	if err != nil {
		if ctx.Err() == nil {
			k.Log.Warn("failed to list static pods", "error", err.Error())
		}
		return nil
	}
	gone, missing := forgotten(grants, there, missing)
	for _, uid := range gone {
		k.Runtime.PodRemoved(uid)
	}
	return missing
}

// forgotten returns the static pods of grants that are missing now and were missing the last time. The container
// runtime does not list a pod yet while its grants are being made. All that are missing now are in the result missing.
func forgotten(grants []sharing.ContainerRef, there, last map[string]bool) (gone []string, missing map[string]bool) {
	missing = map[string]bool{}
	for _, ref := range grants {
		uid := ref.PodUID
		if !kube.IsStatic(uid) || there[uid] || missing[uid] {
			continue
		}
		missing[uid] = true
		if last[uid] {
			gone = append(gone, uid)
		}
	}
	return gone, missing
}

func (k *Kubernetes) crossCheck(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, runtimeDeadline)
	defer cancel()
	seen, err := k.runtimeDoor.Containers(ctx, containerd.NamespaceKubernetes)
	if err == nil {
		err = k.Runtime.CrossCheck(ctx, seen)
	}
	if err != nil && ctx.Err() == nil {
		k.Log.Warn("failed to compare containers with the ledger", "error", err.Error())
	}
}
