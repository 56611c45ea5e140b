// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"cmp"
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

// Claimed says which grant a container uses that ResourceClaims admit. Exactly one field is set.
type Claimed struct {
	// Own is its grant. Companion is a grant with whole GPUs or a MIG instance that it can have, too.
	Own, Companion ledger.GrantID
	// Former is the grant of a container that does not run again, which it takes over.
	Former ledger.GrantID
}

// ClaimGrant finds the grant of a container that ResourceClaims admit. NodePrepareResources makes such grants, so a
// container whose claims have none does not start. An init container uses the grant of a container with the same
// claims. Several pods can use whole GPUs and MIG instances of one claim, and one pod after the other a share.
//
// Errors: sharing.ErrUnavailable while another pod has the share, sharing.ErrConflict for other claims than those of
// the grant, and sharing.ErrInvalid if the claims are not prepared.
func ClaimGrant(l *ledger.Ledger, ask sharing.ContainerRequest) (Claimed, error) {
	g, ok := l.ByContainer(ask.Ref.PodUID, ask.Ref.Container)
	if !ok && ask.Kind == sharing.ContainerInit {
		g, ok = grantOfClaims(l, ask)
	}
	switch {
	case ok && !slices.Equal(g.Requests, ask.Requests):
		return Claimed{}, fmt.Errorf("grant %q is for %v, and kubelet admitted %v: %w", g.ID,
			sharing.FormatResourceRequests(g.Requests), sharing.FormatResourceRequests(ask.Requests),
			sharing.ErrConflict)
	case ok && g.Withdrawn == ledger.ClaimEnded:
		return Claimed{}, notPrepared(ask)
	case ok:
		return Claimed{Own: g.ID}, nil
	}
	if g, ok := ledger.CompanionOf(ask.Requests, l.Grants()); ok {
		return Claimed{Companion: g.ID}, nil
	}
	former, err := formerOf(l, ask)
	return Claimed{Former: former}, err
}

// formerOf is the grant of a share that a container takes over. It is of a pod that ended, or of an init container of
// the same pod. It prefers the grant of a container of the same name, and then one with a cap that others share.
func formerOf(l *ledger.Ledger, ask sharing.ContainerRequest) (ledger.GrantID, error) {
	var found []ledger.Grant
	for _, g := range l.Grants() {
		own := g.Owner.PodUID == ask.Ref.PodUID
		switch {
		case g.Withdrawn == ledger.ClaimEnded || !overlap(g.Requests, ask.Requests):
		case !slices.Equal(g.Requests, ask.Requests):
			return "", fmt.Errorf("pod %s/%s has a ResourceClaim of it together with others; %s: %w",
				g.Owner.Namespace, g.Owner.PodName, claimRemedy, sharing.ErrInvalid)
		case own && g.Kind == sharing.ContainerInit && idle(g):
			found = append(found, g)
		case own:
		case g.Withdrawn != ledger.PodRemoved || !idle(g):
			return "", fmt.Errorf("pod %s/%s has the ResourceClaim and has not ended; delete it, or %s: %w",
				g.Owner.Namespace, g.Owner.PodName, claimRemedy, sharing.ErrUnavailable)
		default:
			found = append(found, g)
		}
	}
	if len(found) == 0 {
		return "", notPrepared(ask)
	}
	rank := func(g ledger.Grant) int {
		switch {
		case g.Owner.Container == ask.Ref.Container:
			return 0
		case g.With == "":
			return 1
		}
		return 2
	}
	return slices.MinFunc(found, func(a, b ledger.Grant) int { return cmp.Compare(rank(a), rank(b)) }).ID, nil
}

// idle reports whether no container uses a grant now.
func idle(g ledger.Grant) bool {
	return g.Active == nil && g.Work == ledger.NoWork && (g.Next == nil || g.Next.State != ledger.Activating)
}

func overlap(a, b []sharing.ResourceRequest) bool {
	return slices.ContainsFunc(a, func(one sharing.ResourceRequest) bool { return slices.Contains(b, one) })
}

// notPrepared: kubelet prepares a claim before it starts a container. So no later try finds a grant.
func notPrepared(ask sharing.ContainerRequest) error {
	return fmt.Errorf("no grant of pod %s/%s has its ResourceClaim: it was prepared for other containers, or has been "+
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

// KeptForClaim reports whether the grant of a pod that ended stays, because kubelet keeps its ResourceClaim prepared
// for the next pod. One that has whole devices goes if another pod has them, too.
func KeptForClaim(grants []ledger.Grant, g ledger.Grant) bool {
	if g.Withdrawn == ledger.ClaimEnded || !sharing.OfClaims(g.Requests) {
		return false
	}
	key := g.DevicesKey()
	return key == "" || !slices.ContainsFunc(grants, func(o ledger.Grant) bool {
		return o.ID != g.ID && o.Withdrawn == ledger.NotWithdrawn && o.DevicesKey() == key
	})
}
