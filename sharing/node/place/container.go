// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/instances"
)

// podsBut are the backends that cannot enforce a request of a pod.
func (n *Node) podsBut(req sharing.Request) choice.Without {
	return choice.PodsByMPS(n.NoMPSForPods).OnGPUs(req.GPUs)
}

// Container places the complete request of a container. If others share its cap, the GPUs have room for all of them.
// Errors: *allocator.NoFit, *NoInstance, and sharing.ErrUnsupported if no backend enforces it.
func (n *Node) Container(ask sharing.ContainerAsk, req sharing.Request) (Placed, error) {
	if ask.SharedCap.GPUs > 0 {
		return n.shared(ask, req)
	}
	req = n.Hardened(req)
	but := n.podsBut(req)
	p, err := n.choose(req, ask.Advice, but)
	if err != nil {
		return Placed{}, err
	}
	by, err := n.enforcer(req, p, but)
	return Placed{req, p, by}, err
}

// shared places the request of a container whose cap others share.
func (n *Node) shared(ask sharing.ContainerAsk, req sharing.Request) (Placed, error) {
	together, err := n.Config.Resolve(n.Pool, ask.SharedCap)
	if err != nil {
		return Placed{}, err
	}
	alone := n.podsBut(req)
	p, err := n.choose(together, ask.Advice, alone.Together())
	if err != nil {
		if _, other := n.choose(together, ask.Advice, alone); other == nil {
			err = fmt.Errorf(
				"no backend of this node enforces one cap for several containers: remove share-cap-with, or "+
					"list libkerf or reactive in backends: %w", err)
		}
		return Placed{}, err
	}
	by, err := n.enforcer(together, p, alone.Together())
	if err == nil && by.None() { // if one container alone has a backend, who requests a shared cap must know
		var other choice.Choice
		if other, err = n.enforcer(together, p, n.podsBut(together)); err == nil && !other.None() {
			err = fmt.Errorf("no backend of this node holds several containers to one cap (%s): give each an amount "+
				"without share-cap-with, or list libkerf or reactive: %w", by.Why, sharing.ErrUnsupported)
		}
	}
	return Placed{req, PartOn(req, p, n.gpu), by}, err
}

// PartOn is what a request gives on the GPUs of a placement. gpu finds a GPU.
func PartOn(req sharing.Request, p sharing.Placement, gpu func(sharing.GPURef) (ledger.View, bool)) sharing.Placement {
	out := make(sharing.Placement, 0, len(p))
	for _, f := range p {
		v, _ := gpu(f.GPU)
		out = append(out, req.On(v.GPU))
	}
	return out
}

// Lender finds the grant of the pod that an init container can use before the container that the grant is for. No
// container uses it now, and it is the smallest that covers the request. part is empty if the request takes all of it.
func (n *Node) Lender(podUID string, req sharing.Request) (id ledger.ClaimID, part sharing.Placement, ok bool) {
	var least sharing.Bytes
	for _, g := range n.Grants {
		if g.Claim.Owner.PodUID != podUID || g.Claim.Kind == sharing.ContainerSidecar || g.Work != ledger.NoWork ||
			g.SharedCap != nil {
			continue
		}
		want, covered := n.within(g.Claim, req)
		total, _ := g.Claim.Placement.Total()
		if covered && (!ok || total < least) {
			id, part, least, ok = g.Claim.ID, want, total, true
			if slices.Equal(part, g.Claim.Placement) {
				part = nil
			}
		}
	}
	return id, part, ok
}

// within is what a request takes of the GPUs of a claim, if the claim covers it.
func (n *Node) within(c ledger.Claim, req sharing.Request) (sharing.Placement, bool) {
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

// Unclaimed are the requests of those containers of a pod that have no grant and can use no other's. An init container
// can if another container requests as much memory. Those that share a cap count once.
func (n *Node) Unclaimed(asks []sharing.ContainerAsk) []sharing.Request {
	var out []sharing.Request
	for i, a := range asks {
		claimed := slices.ContainsFunc(n.Grants, func(g ledger.Grant) bool {
			o := g.Claim.Owner
			return o.Pod() && o.PodUID == a.Ref.PodUID && o.Container == a.Ref.Container
		})
		covered, request := a.With != "", a.Request // with what it shares
		if a.SharedCap.GPUs > 0 {
			request = a.SharedCap
		}
		for j, b := range asks {
			larger := b.Request.Memory > a.Request.Memory || b.Request.Memory == a.Request.Memory &&
				(b.Kind == sharing.ContainerApp || j < i)
			covered = covered || a.Kind == sharing.ContainerInit && b.Kind != sharing.ContainerSidecar &&
				b.SharedCap.GPUs == 0 && j != i && larger
		}
		if !claimed && !covered {
			out = append(out, n.Resolved(request)...)
		}
	}
	return out
}

// ShouldMove reports whether an unused grant moves to the NUMA node that kubelet chose. The grant is reserved with the
// pod's sandbox, and kubelet's choice is known when the container is created. A grant stays if the scheduler planned
// its place, and if containers share it. gpu finds a GPU.
func ShouldMove(g ledger.Grant, ask sharing.ContainerAsk, gpu func(sharing.GPURef) (ledger.View, bool)) bool {
	near, p := ask.Advice.Near, g.Claim.Placement
	if !g.Fresh || g.Work != ledger.NoWork || g.Lease != nil || ask.With != "" || ask.SharedCap.GPUs > 0 ||
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

// Near places the request of a container on the NUMA node that kubelet chose, if that has room.
func (n *Node) Near(req sharing.Request, near []sharing.Near) (sharing.Placement, bool) {
	req = n.Hardened(req)
	return chooseNear(n.Free(req.Profile, n.podsBut(req)), req, near)
}

// Placed is where a request goes, and what enforces it there.
type Placed struct {
	// Request is complete. One for memory that only hardware may enforce is one for a MIG instance.
	Request   sharing.Request
	Placement sharing.Placement
	Enforced  choice.Choice
}

// NoInstance is the error of a request for a MIG instance that the node has no room for. It wraps the error that says
// so.
type NoInstance struct {
	error
	// Reason is that of the GPU that came nearest to an answer.
	Reason mig.Reason
	// Tries is how often the node looked for an instance.
	Tries int
}

// Unwrap returns the error for people.
func (e *NoInstance) Unwrap() error { return e.error }

// choose places a request where the advice says if it still fits there, else where it fits. but replaces answers of
// backends.
func (n *Node) choose(req sharing.Request, advice sharing.Advice, but choice.Without) (sharing.Placement, error) {
	if req.Kind == sharing.KindMIG {
		return n.chooseInstance(req, advice)
	}
	states := n.Free(req.Profile, but)
	if len(advice.GPUs) == req.GPUs {
		planned := slices.DeleteFunc(slices.Clone(states),
			func(s allocator.GPUState) bool { return !slices.Contains(advice.Refs(), s.GPU.Ref()) })
		if p, err := allocator.Choose(planned, req); err == nil {
			return p, nil
		}
	}
	if p, ok := chooseNear(states, req, advice.Near); ok {
		return p, nil
	}
	return allocator.Choose(states, req)
}

func (n *Node) chooseInstance(req sharing.Request, advice sharing.Advice) (sharing.Placement, error) {
	var gpus []instances.Candidate
	for _, v := range n.GPUs {
		if id := v.GPU.Ref(); !id.IsInstance() {
			gpus = append(gpus, instances.Candidate{
				GPU: v.GPU, Turns: n.Modes.Turns(id.UUID), Switching: n.Modes.Switching(id.UUID),
				Taken: append(n.Granted(id.UUID), n.Faults(id.UUID)...),
			})
		}
	}
	p, reason, err := instances.Choose(n.MIG, gpus, req, advice)
	if err != nil {
		return nil, &NoInstance{err, reason, 1}
	}
	return p, nil
}

// Hardened turns a request for memory that only hardware may enforce into one for the smallest MIG instance that has
// it. It does so if the node creates instances. Any other request stays as it is.
func (n *Node) Hardened(req sharing.Request) sharing.Request {
	gives := func(v ledger.View) bool { return v.GPU.MIG || n.Modes.Turns(v.GPU.UUID) }
	hard := instances.Hardened(req)
	if hard.Kind == req.Kind || n.MIG == nil || !slices.ContainsFunc(n.GPUs, gives) {
		return req
	}
	return hard
}

// HardenedAll is Hardened for each of the requests.
func (n *Node) HardenedAll(list []sharing.Request) []sharing.Request {
	out := make([]sharing.Request, len(list))
	for i, req := range list {
		out[i] = n.Hardened(req)
	}
	return out
}

// chooseNear takes whole GPUs from the NUMA node that kubelet's topology manager chose. Ids of several nodes are no
// advice. Either no node has enough GPUs, and then any split is on those nodes. Or kubelet has no topology policy and
// took ids by chance; then NVLink matters more, which the allocator considers.
func chooseNear(states []allocator.GPUState, req sharing.Request, near []sharing.Near) (sharing.Placement, bool) {
	if req.Kind != sharing.KindWhole || len(near) != 1 || near[0].Count != req.GPUs {
		return nil, false
	}
	local := slices.DeleteFunc(slices.Clone(states),
		func(s allocator.GPUState) bool { return s.GPU.NUMA != near[0].NUMA })
	p, err := allocator.Choose(local, req)
	return p, err == nil
}
