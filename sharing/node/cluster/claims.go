// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	plugin "github.com/kerf-gpu/kerf/dra"
	"github.com/kerf-gpu/kerf/internal/kube"
	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/assigned"
	"github.com/kerf-gpu/kerf/sharing/node/claims"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
)

const (
	// ClaimRejectedReason of a pod: the agent rejects its ResourceClaims, for the stated reason. Kubelet tries again.
	ClaimRejectedReason = "GPUClaimRejected"

	// claimsRetry is how long the agent waits before it serves ResourceClaims again after a failure.
	claimsRetry = 5 * time.Second
	// gateWait is how long one try of kubelet waits for NRI and the driver.
	gateWait = 10 * time.Second
)

// claimFront is the DRA front end of the node. It is also the node runtime as the preparer of claims needs it.
type claimFront struct {
	k        *Kubernetes
	preparer *namingPreparer
	plugin   *plugin.Plugin
	// creator creates the MIG instances of claims before their pods are bound.
	creator *assigned.Creator
	// known is true once devices may be published.
	known atomic.Bool
}

// newClaimFront makes one that does nothing yet.
func newClaimFront(k *Kubernetes) (*claimFront, error) {
	f := &claimFront{k: k}
	f.preparer = &namingPreparer{Preparer: claims.New(claims.Options{
		Log: k.Log, Node: f, Pods: k.api, Eval: k.Options.Failpoints.Eval,
		Write: func(asks []sharing.ResourceRequest) error {
			k.writing.Lock()
			defer k.writing.Unlock()
			return k.specs.Claims(asks)
		},
		Reject: func(ctx context.Context, ref sharing.ContainerRef, message string) {
			k.api.Event(ctx, ref, ClaimRejectedReason, message, true)
		},
	})}
	client, err := kube.Clientset(k.api)
	if err != nil {
		return nil, fmt.Errorf("DRA plugin: %w", err)
	}
	f.creator = assigned.New(k.Log, assignedNode{f}, &plugin.Conditions{Client: client, Node: k.Options.Cluster.Node,
		Now: time.Now})
	f.plugin = plugin.New(plugin.Options{
		Log: k.Log, Client: client, Node: k.Options.Cluster.Node, Preparer: f.preparer,
		Registry: filepath.Join(k.Options.Cluster.Kubelet, "plugins_registry"),
		Plugins:  filepath.Join(k.Options.Cluster.Kubelet, "plugins"),
		Devices:  f.devices, Changed: k.Runtime.Changed, Grants: f.granted, Condition: f.condition,
		Now: time.Now, Answered: k.ClaimsPrepared,
	})
	return f, nil
}

// ReservePod implements claims.Node. It first waits until containers of pods can start, as the device plugin does
// before each start.
func (f *claimFront) ReservePod(ctx context.Context, asks []sharing.ContainerRequest) error {
	gate, cancel := context.WithTimeout(ctx, gateWait)
	defer cancel()
	if err := f.k.gate(gate); err != nil {
		return err
	}
	asks = f.preparer.names.named(asks)
	for {
		changed := f.k.Runtime.Changed()
		err := f.k.Runtime.ReservePod(ctx, asks)
		if err == nil || len(asks) == 0 || !f.k.Runtime.Modes.Expects(asks[0].Ref.PodUID) {
			return err //nolint:wrapcheck // it names the container
		}
		select { // A GPU changes its MIG mode for the pod.
		case <-ctx.Done():
			return err //nolint:wrapcheck // as above
		case <-changed:
		}
	}
}

// EndClaims implements claims.Node.
func (f *claimFront) EndClaims(uids []string) error { return f.k.Runtime.EndClaims(uids) }

// Save implements claims.Node.
func (f *claimFront) Save() error { return f.k.Runtime.Store.Save() }

// AwaitInstances implements claims.Node.
func (f *claimFront) AwaitInstances(ctx context.Context, podUID string) error {
	return f.k.Runtime.AwaitInstances(ctx, podUID)
}

// Grants implements claims.Node.
func (f *claimFront) Grants() []ledger.Grant { return f.k.Runtime.Store.Grants() }

// GPUs implements claims.Node. Shared MIG instances are not among them.
func (f *claimFront) GPUs() []sharing.GPUID {
	var out []sharing.GPUID
	for _, g := range f.k.Runtime.Inventory() {
		if !g.Ref().IsInstance() {
			out = append(out, g.UUID)
		}
	}
	return out
}

// permitsPrivileged returns whether the profile of claims lets their pods have privileged containers.
func permitsPrivileged(r *node.Runtime) func(requests []sharing.ResourceRequest) bool {
	return func(requests []sharing.ResourceRequest) bool {
		config := r.Settings().Config()
		return slices.ContainsFunc(r.Store.Grants(), func(g ledger.Grant) bool {
			p, known := config.Profile(g.Request.Profile)
			return known && p.AllowPrivileged && slices.Equal(g.Requests, requests)
		})
	}
}

// serve serves ResourceClaims until ctx ends, from the moment that a pool, GPU or grant needs it. After a failure
// it says why, and tries again.
func (f *claimFront) serve(ctx context.Context) {
	k := f.k
	for changed := k.Runtime.Changed(); !f.needed(); changed = k.Runtime.Changed() {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
	for ctx.Err() == nil {
		err := f.preparer.Restore()
		if err == nil {
			err = f.plugin.Run(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		k.Log.Error("failed to serve ResourceClaims, will retry", "error", err)
		f.condition(err)
		sleep.For(ctx, claimsRetry)
	}
}

// condition tells the users of the node why ResourceClaims are not served; nil if they are.
func (f *claimFront) condition(err error) {
	text := ""
	if err != nil {
		text = "pods get no GPU by ResourceClaim: " + err.Error() + "; install Kerf with dra.enabled=true"
	}
	f.k.Runtime.Conditions.Set(conditions.Claims, text)
}

// needed reports whether the pool has the DRA front end, or a GPU or a grant still has it.
func (f *claimFront) needed() bool {
	k, settings := f.k, f.k.Runtime.Settings()
	return settings.Pool().FrontEnd == sharing.FrontEndDRA ||
		slices.ContainsFunc(k.Runtime.Inventory(),
			func(g sharing.GPU) bool { return settings.Has(g.UUID).FrontEnd == sharing.FrontEndDRA }) ||
		slices.ContainsFunc(k.Runtime.Store.Grants(), func(g ledger.Grant) bool { return sharing.OfClaims(g.Requests) })
}

// granted are the grants by ResourceClaims for the status of claims, and the GPUs of the node.
func (f *claimFront) granted() ([]dra.Granted, []sharing.GPUID) {
	var out []dra.Granted
	for _, g := range f.k.Runtime.LedgerState().Grants {
		if sharing.OfClaims(g.Requests) {
			out = append(out, dra.Granted{Requests: g.Requests, Caps: g.Granted(), Level: g.Level,
				Reason: g.LevelReason,
				Active: g.Active != nil && g.Active.State == ledger.Active})
		}
	}
	return out, f.GPUs()
}
