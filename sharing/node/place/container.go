// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"slices"
	"strconv"

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
func (n *Node) Container(ask sharing.ContainerRequest, req sharing.Request) (Placed, error) {
	n = n.of(ask.Requests)
	if ask.SharedCap.GPUs > 0 {
		return n.shared(ask, req)
	}
	if !ask.Advice.Exact { // what the cluster's scheduler allocated stays of its kind
		req = n.Hardened(req)
	}
	but := n.podsBut(req)
	p, err := n.choose(req, ask.Advice, but)
	if err != nil {
		return Placed{}, err
	}
	by, err := n.enforcer(req, p, but)
	return Placed{req, p, by}, err
}

// shared places the request of a container whose cap others share.
func (n *Node) shared(ask sharing.ContainerRequest, req sharing.Request) (Placed, error) {
	together, err := n.Config.Resolve(n.Pool, ask.SharedCap)
	if err != nil {
		return Placed{}, err
	}
	alone, remedy := n.podsBut(req), "remove share-cap-with"
	if sharing.OfClaims(ask.Requests) {
		remedy = "give each container a ResourceClaim"
	}
	p, err := n.choose(together, ask.Advice, alone.Together())
	if err != nil {
		if _, other := n.choose(together, ask.Advice, alone); other == nil {
			err = fmt.Errorf(
				"no backend of this node enforces one cap for several containers: %s, or list libkerf or reactive in "+
					"backends: %w", remedy, err)
		}
		return Placed{}, err
	}
	by, err := n.enforcer(together, p, alone.Together())
	if err == nil && by.None() { // if one container alone has a backend, who requests a shared cap must know
		var other choice.Choice
		if other, err = n.enforcer(together, p, n.podsBut(together)); err == nil && !other.None() {
			err = fmt.Errorf("no backend of this node enforces one cap for several containers (%s): %s, or list "+
				"libkerf or reactive in backends: %w", by.Reason, remedy, sharing.ErrUnsupported)
		}
	}
	return Placed{req, PartOn(req, p, n.gpu), by}, err
}

// PlaceOnNUMA places the request of a container on the NUMA node that kubelet chose, if that has room.
func (n *Node) PlaceOnNUMA(ask sharing.ContainerRequest, req sharing.Request) (sharing.Placement, bool) {
	n, req = n.of(ask.Requests), n.Hardened(req)
	return chooseNear(n.Free(req.Profile, n.podsBut(req)), req, ask.Advice.NUMA)
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
	if p, ok := chooseNear(states, req, advice.NUMA); ok {
		return p, nil
	}
	return allocator.Choose(states, req)
}

func (n *Node) chooseInstance(req sharing.Request, advice sharing.Advice) (sharing.Placement, error) {
	var gpus []instances.Candidate
	for _, v := range n.GPUs {
		if id := v.GPU.Ref(); !id.IsInstance() && (!n.byPlugin || n.Settings[id].FrontEnd != sharing.FrontEndDRA) {
			gpus = append(gpus, instances.Candidate{
				GPU: v.GPU, ModeSwitchable: n.Modes.ModeSwitchable(id.UUID), Switching: n.Modes.Switching(id.UUID),
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
	gives := func(v ledger.View) bool { return v.GPU.MIG || n.Modes.ModeSwitchable(v.GPU.UUID) }
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
func chooseNear(states []allocator.GPUState, req sharing.Request, near []sharing.NUMAAffinity) (sharing.Placement,
	bool) {
	if req.Kind != sharing.KindWhole || len(near) != 1 || near[0].Count != req.GPUs {
		return nil, false
	}
	local := slices.DeleteFunc(slices.Clone(states),
		func(s allocator.GPUState) bool { return s.GPU.NUMA != near[0].NUMA })
	p, err := allocator.Choose(local, req)
	return p, err == nil
}

// enforcer chooses the backend for a placement. The GPUs of a placement may have no backend in common, although each
// has one that is strong enough: then the error is sharing.ErrUnsupported.
func (n *Node) enforcer(req sharing.Request, p sharing.Placement, but choice.Without) (choice.Choice, error) {
	if req.Kind == sharing.KindMIG {
		return choice.Choice{Level: sharing.LevelHardware}, nil
	}
	var on []choice.On
	least := req.MinLevel
	mps, others := mixes(n.Grants)
	for _, f := range p {
		if f.Whole {
			continue
		}
		rep, known := n.Reports[f.GPU]
		if !known {
			rep = choice.Unprobed("the agent has not probed GPU " + f.GPU.String())
		}
		name := f.GPU.String()
		if v, ok := n.gpu(f.GPU); ok {
			name = strconv.Itoa(v.GPU.Index)
		}
		least = max(least, sharing.LeastOfShare(req.MinLevel, n.Settings[f.GPU].MinLevel))
		on = append(on, choice.On{
			GPU: name, List: n.List(f.GPU, req.Profile), Report: rep.But(but.Alongside(mps[f.GPU], others[f.GPU])),
		})
	}
	if len(on) == 0 {
		return choice.Choice{Level: sharing.LevelExclusive}, nil
	}
	c := choice.Choose(on...)
	if !c.Level.AtLeast(least) {
		return c, fmt.Errorf("the GPUs %v together can have level %s at most, %s required (%s): %w", p.GPUs(),
			c.Level, least, c.Reason, sharing.ErrUnsupported)
	}
	return c, nil
}
