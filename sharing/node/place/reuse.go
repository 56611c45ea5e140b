// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// PartOn is what a request gives on the GPUs of a placement. gpu finds a GPU.
func PartOn(req sharing.Request, p sharing.Placement, gpu func(sharing.GPURef) (ledger.View, bool)) sharing.Placement {
	out := make(sharing.Placement, 0, len(p))
	for _, f := range p {
		v, _ := gpu(f.GPU)
		out = append(out, req.On(v.GPU))
	}
	return out
}

// BurstManager finds the grant of the pod that an init container can use before the container that the grant is for. No
// container uses it now, and it is the smallest that covers the request. part is empty if the request takes all of
// it.
func (n *Node) BurstManager(podUID string, req sharing.Request) (id ledger.GrantID, part sharing.Placement, ok bool) {
	var least sharing.Bytes
	for _, g := range n.Grants {
		if g.Owner.PodUID != podUID || g.Kind == sharing.ContainerSidecar || g.Work != ledger.NoWork ||
			g.SharedCap != nil {
			continue
		}
		want, covered := n.within(g.Reservation, req)
		total, _ := g.Placement.Total()
		if covered && (!ok || total < least) {
			id, part, least, ok = g.ID, want, total, true
			if slices.Equal(part, g.Placement) {
				part = nil
			}
		}
	}
	return id, part, ok
}

// within is what a request takes of the GPUs of a grant, if the grant covers it.
func (n *Node) within(c ledger.Reservation, req sharing.Request) (sharing.Placement, bool) {
	if len(c.Placement) != req.GPUs || !c.Level.AtLeast(req.MinLevel) {
		return nil, false
	}
	if req = n.Hardened(req); req.Kind == sharing.KindMIG {
		f := c.Placement[0]
		if f.MIG.None() {
			return nil, false
		}
		v, ok := n.gpu(f.GPU)
		return c.Placement.Clone(), ok && n.MIG != nil && req.Admits(v.GPU) && n.MIG.Fits(f.GPU.UUID, req.MIG, f.MIG)
	}
	var p sharing.Placement
	for _, f := range c.Placement {
		v, ok := n.gpu(f.GPU)
		want := req.On(v.GPU)
		if !ok || !req.Admits(v.GPU) || !ledger.Covers(f, want) {
			return nil, false
		}
		p = append(p, want)
	}
	return p, true
}

// Unreserved are the requests of those containers of a pod that have no grant and can use no other's. An init
// container can if another container requests as much memory. Those that share a cap count once.
func (n *Node) Unreserved(asks []sharing.ContainerRequest) []sharing.Request {
	var out []sharing.Request
	for i, a := range asks {
		reserved := slices.ContainsFunc(n.Grants, func(g ledger.Grant) bool {
			o := g.Owner
			return o.Pod() && o.PodUID == a.Ref.PodUID && o.Container == a.Ref.Container
		})
		covered, request := a.With != "", a.Request // With what it shares.
		covered = covered || a.Request.Kind != sharing.KindShared && sharing.OfClaims(a.Requests) &&
			slices.ContainsFunc(asks[:i], func(b sharing.ContainerRequest) bool {
				return slices.Equal(a.Requests, b.Requests) // One device for both.
			})
		covered = covered || a.ExistingOnly && sharing.OfClaims(a.Requests)
		if a.SharedCap.GPUs > 0 {
			request = a.SharedCap
		}
		for j, b := range asks {
			larger := b.Request.Memory > a.Request.Memory || b.Request.Memory == a.Request.Memory &&
				(b.Kind == sharing.ContainerApp || j < i)
			covered = covered || a.Kind == sharing.ContainerInit && b.Kind != sharing.ContainerSidecar &&
				b.SharedCap.GPUs == 0 && j != i && larger
		}
		if !reserved && !covered {
			out = append(out, n.Resolved(request)...)
		}
	}
	return out
}

// ShouldMove reports whether a grant that no container has used goes to the NUMA node that kubelet chose. Kerf
// reserves the grant when the pod's sandbox is created, and learns kubelet's choice later, with the container. A
// grant stays where the scheduler planned it, and if containers share it. gpu finds a GPU.
func ShouldMove(g ledger.Grant, ask sharing.ContainerRequest, gpu func(sharing.GPURef) (ledger.View, bool)) bool {
	near, p := ask.Advice.NUMA, g.Placement
	if !g.Fresh || g.Work != ledger.NoWork || g.Active != nil || ask.With != "" || ask.SharedCap.GPUs > 0 ||
		len(near) != 1 || len(p) != near[0].Count {
		return false
	}
	there, planned := true, len(ask.Advice.GPUs) == len(p)
	for _, f := range p {
		v, ok := gpu(f.GPU)
		if !f.Whole || !ok {
			return false
		}
		there = there && v.GPU.NUMA == near[0].NUMA
		planned = planned && slices.Contains(ask.Advice.GPUs, f.GPU.UUID)
	}
	return !there && !planned
}

// SharesAs reports whether a grant shares, or does not share, the cap that the container is to share now.
func SharesAs(l *ledger.Ledger, g ledger.Grant, ask sharing.ContainerRequest) bool {
	if ask.With == "" {
		return g.With == ""
	}
	leader, ok := l.ByContainer(ask.Ref.PodUID, ask.With)
	return ok && g.With == leader.ID
}
