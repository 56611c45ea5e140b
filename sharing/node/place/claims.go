// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// Instance chooses exactly the MIG instance that the scheduler allocated to a claim. Errors: *NoInstance.
func Instance(n *Node, claimUID string, req sharing.Request, advice sharing.Advice) (sharing.Placement, error) {
	return forClaims(n, []string{claimUID}).chooseInstance(req, advice)
}

// claimRemedy is what users do about a claim that is another pod's.
const claimRemedy = "give each pod its own claim, for example with a ResourceClaimTemplate"

// ClaimGrant finds the grant of a container that ResourceClaims admit. Only NodePrepareResources makes such a grant, so
// a container without one does not start. An init container uses the grant of a container with the same claims.
func ClaimGrant(l *ledger.Ledger, ask sharing.ContainerRequest) (ledger.GrantID, error) {
	g, ok := l.ByContainer(ask.Ref.PodUID, ask.Ref.Container)
	if !ok && ask.Kind == sharing.ContainerInit {
		g, ok = grantOfClaims(l, ask)
	}
	switch {
	case ok && slices.Equal(g.Requests, ask.Requests):
		l.CancelWithdrawal(g.ID, ledger.InitDone)
		l.CancelWithdrawal(g.ID, ledger.PodRemoved)
		return g.ID, nil
	case ok:
		return "", fmt.Errorf("grant %q is for %v, and kubelet admitted %v: %w", g.ID,
			sharing.FormatResourceRequests(g.Requests),
			sharing.FormatResourceRequests(ask.Requests), sharing.ErrConflict)
	}
	for _, other := range l.Grants() {
		if o := other.Owner; o.PodUID != ask.Ref.PodUID && slices.ContainsFunc(other.Requests,
			func(a sharing.ResourceRequest) bool { return slices.Contains(ask.Requests, a) }) {
			return "", fmt.Errorf("pod %s/%s has the ResourceClaim; %s: %w", o.Namespace, o.PodName, claimRemedy,
				sharing.ErrInvalid)
		}
	}
	// kubelet prepares a claim once, for the first of its pods, and starts a container only after that. So no later try
	// finds a grant.
	return "", fmt.Errorf("no grant of pod %s/%s has its ResourceClaim: it was prepared for another pod, or has been "+
		"unprepared; %s: %w", ask.Ref.Namespace, ask.Ref.Pod, claimRemedy, sharing.ErrInvalid)
}

// grantOfClaims is a grant of the pod with the same claims.
func grantOfClaims(l *ledger.Ledger, ask sharing.ContainerRequest) (ledger.Grant, bool) {
	for _, g := range l.Grants() {
		if g.Owner.PodUID == ask.Ref.PodUID && slices.Equal(g.Requests, ask.Requests) {
			return g, true
		}
	}
	return ledger.Grant{}, false
}
