// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/claims"
)

const namedGPU = sharing.GPUID("GPU-aaaaaaaa-0000-4000-8000-000000000000")

// namingNode has the names of the claims of each container that it reserved grants for.
type namingNode struct {
	names    *claimNames
	reserved map[string][]string
}

func (n *namingNode) ReservePod(_ context.Context, asks []sharing.ContainerRequest) error {
	for _, a := range n.names.named(asks) {
		n.reserved[a.Ref.Container] = a.Claims
	}
	return nil
}

func (n *namingNode) EndClaims([]string) error                     { return nil }
func (n *namingNode) Save() error                                  { return nil }
func (n *namingNode) AwaitInstances(context.Context, string) error { return nil }
func (n *namingNode) Grants() []ledger.Grant                       { return nil }
func (n *namingNode) GPUs() []sharing.GPUID                        { return []sharing.GPUID{namedGPU} }

// Pod is a pod with two containers that share a claim of a template, and one with two other claims.
func (n *namingNode) Pod(_ context.Context, uid string) (sharing.Pod, bool, error) {
	both := []sharing.ContainerClaim{{Name: "gpu"}}
	return sharing.Pod{UID: uid, Namespace: "team", Name: "train",
		Claims: []sharing.PodClaim{{Name: "gpu", Claim: "train-gpu-x7k2p"}, {Name: "b", Claim: "other-b"},
			{Name: "a", Claim: "other-a"}},
		Containers: []sharing.PodContainer{{Name: "main", Claims: both}, {Name: "side", Claims: both},
			{Name: "two", Claims: []sharing.ContainerClaim{{Name: "b"}, {Name: "a", Request: "small"}}}}}, true, nil
}

func TestClaimsAreNamed(t *testing.T) {
	n := &namingNode{reserved: map[string][]string{}}
	p := &namingPreparer{Preparer: claims.New(claims.Options{Log: slog.New(slog.DiscardHandler), Node: n, Pods: n,
		Write: func([]sharing.ResourceRequest) error { return nil }})}
	n.names = &p.names
	claim := func(uid, name string, requests ...string) dra.Claim {
		c := dra.Claim{UID: uid, Namespace: "team", Name: name, Pods: []string{"uid"}}
		for _, r := range requests {
			c.Results = append(c.Results, dra.Result{Request: r, Pool: "n",
				Device: dra.DeviceName(namedGPU, dra.KindShare), Memory: 10 << 30, StatesMemory: true})
		}
		return c
	}
	err := p.Prepare(t.Context(), []dra.Claim{claim("11111111-0000-4000-8000-000000000000", "train-gpu-x7k2p", "gpu"),
		claim("22222222-0000-4000-8000-000000000000", "other-b", "gpu"),
		claim("33333333-0000-4000-8000-000000000000", "other-a", "small")})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"main": {"train-gpu-x7k2p/gpu"}, "side": {"train-gpu-x7k2p/gpu"},
		"two": {"other-a/small", "other-b/gpu"}}
	if d := cmp.Diff(want, n.reserved); d != "" {
		t.Error(d)
	}
	if len(p.names.byID) != 0 {
		t.Errorf("the names of prepared claims stay: %v", p.names.byID)
	}
}
