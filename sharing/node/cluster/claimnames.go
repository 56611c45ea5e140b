// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
	"github.com/kerf-gpu/kerf/sharing/node/claims"
)

// namingPreparer is a Preparer that gives grants the names of their claims. Requests of containers have only UIDs.
type namingPreparer struct {
	*claims.Preparer
	names claimNames
}

// Prepare implements dra.Preparer.
func (p *namingPreparer) Prepare(ctx context.Context, all []dra.Claim) error {
	p.names.add(all)
	defer p.names.remove(all)
	return p.Preparer.Prepare(ctx, all) //nolint:wrapcheck // it names the pod or the claim
}

// claimNames has the names of the claims that are being prepared, by UID. The zero value is ready.
type claimNames struct {
	mu   sync.Mutex
	byID map[string]string
}

func (n *claimNames) add(all []dra.Claim) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byID == nil {
		n.byID = map[string]string{}
	}
	for _, c := range all {
		n.byID[c.UID] = c.Name
	}
}

func (n *claimNames) remove(all []dra.Claim) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.byID, func(uid, _ string) bool {
		return slices.ContainsFunc(all, func(c dra.Claim) bool { return c.UID == uid })
	})
}

// named are the requests with the names of their claims, as CLAIM/REQUEST. A claim that is not known has none.
func (n *claimNames) named(asks []sharing.ContainerRequest) []sharing.ContainerRequest {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := slices.Clone(asks)
	for i := range out {
		out[i].Claims = nil
		for _, r := range out[i].Requests {
			if name := n.byID[r.ClaimUID()]; name != "" {
				out[i].Claims = append(out[i].Claims, name+"/"+r.ClaimRequestName())
			}
		}
		slices.Sort(out[i].Claims)
	}
	return out
}
