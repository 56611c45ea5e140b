// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/kerf-gpu/kerf/sharing"
)

// podResources is kubelet as far as holdings asks it (internal/kubelet).
type podResources interface {
	Get(ctx context.Context, namespace, pod string) (heldIDs, error)
	List(ctx context.Context) (heldIDs, error)
}

// heldIDs are ids of Kerf's resources: per container (without PodUID) and full name of the resource.
type heldIDs = map[sharing.ContainerRef]map[string][]string

// holdings finds out for the device plugin which containers hold which ids, without disturbing kubelet, whose List can
// take the ids of a pod that it admits just then: it asks after each pod by itself.
//
// Asked after are the pods that may hold ids: those that the runtime knows, and those of the API server's that ask for Kerf's
// resources and are not at their end. The second are more: kubelet gives a pod its ids before it makes its sandbox, from which
// on the runtime knows it, and minutes may lie between the two where a volume is attached.
//
// Kubelet lets all its clients together ask a hundred times a second, so an answer is kept until the runtime knows the pod no more
// and it is at its end: the ids of a pod never change once it is admitted, whatever restarts. It is kept only of a pod that the
// runtime knows, or it could be of the pod that had the name before: kubelet does not say of which it speaks. And only if it is
// complete: each container that kubelet tells of has as many ids as the pod's spec asks for. While kubelet admits a pod
// it has given out to some containers, or to none.
//
// What is not seen yet are pods that kubelet has heard of and the API server's watch here has not, for some milliseconds as a rule.
// Their ids look free. That takes nothing from them, and gives nothing twice: kubelet looks at an id's health when it
// chooses ids, or admits anew, and not when a container starts; which ids are unhealthy stays while pods come, so
// that one that was just given was healthy and stays so, unless hardware is lost in these milliseconds; free ids are then taken from the
// highest down, and kubelet gives them from the lowest up; as many are unhealthy as are lost in any case; and the next
// call, which the pod's claim brings about, puts right which. Who gets a GPU's memory is decided in the books and by no id.
//
// Where kubelet has no such question (before 1.34 as a rule), it is asked for its list. The zero value with its functions
// set is ready; it is for one goroutine.
type holdings struct {
	kubelet podResources
	// pods are those of the node that ask for Kerf's resources and are not at their end; false while that is not known.
	pods func() ([]sharing.Pod, bool)
	// begun are containers of the pods whose sandbox kubelet has had made here, with a claim or without room.
	begun func() []sharing.ContainerRef
	// known are the complete answers, by the pod's UID.
	known map[string]heldIDs
}

// asked is one name of a pod that kubelet may have given ids to.
type asked struct {
	namespace, name string
	// uids are those of the pods that the name stands for, one as a rule.
	uids []string
	// spec is nil where the API server does not tell of the pod, or tells that it is at its end.
	spec *sharing.Pod
	// begun is true where kubelet has come as far as its sandbox.
	begun bool
}

// List says who holds what; see deviceplugin.Holdings. Beside the errors of kubelet's door it returns
// sharing.ErrUnavailable while the API server has not been read, or kubelet does not know pods that it must have.
func (h *holdings) List(ctx context.Context) (map[sharing.ContainerRef]map[string][]string, error) {
	pods, synced := h.pods()
	if !synced {
		return nil, fmt.Errorf("ask kubelet who holds which id: the node's pods have not been read from the API server yet: %w", sharing.ErrUnavailable)
	}
	all := gather(pods, h.begun())
	now := make(map[string]heldIDs, len(all))
	for _, a := range all {
		for _, uid := range a.uids {
			if ids, ok := h.known[uid]; ok && len(a.uids) == 1 {
				now[uid] = ids
			}
		}
	}
	h.known = now
	out := make(heldIDs)
	for _, a := range all {
		ids, ok := h.known[a.uids[0]]
		if !ok {
			var err error
			ids, err = h.kubelet.Get(ctx, a.namespace, a.name)
			switch {
			case errors.Is(err, sharing.ErrUnsupported):
				return h.kubelet.List(ctx)
			case errors.Is(err, sharing.ErrNotFound) && a.begun && a.spec != nil:
				// It had the pod's sandbox made, and the pod goes on: it has started anew and does not know its pods yet.
				return nil, fmt.Errorf("kubelet does not know a pod that it has begun; it may be starting: %w (%w)", err, sharing.ErrUnavailable)
			case errors.Is(err, sharing.ErrNotFound):
				continue // it was not told of the pod yet, or has forgotten it
			case err != nil:
				return nil, err
			}
			if len(a.uids) == 1 && a.begun && a.spec != nil && complete(*a.spec, ids) {
				h.known[a.uids[0]] = ids
			}
		}
		maps.Copy(out, ids)
	}
	return out, nil
}

// gather joins both lists by the pods' names, in order.
func gather(pods []sharing.Pod, begun []sharing.ContainerRef) []*asked {
	byName := map[string]*asked{}
	add := func(namespace, name, uid string) *asked {
		a := byName[namespace+"/"+name]
		if a == nil {
			a = &asked{namespace: namespace, name: name}
			byName[namespace+"/"+name] = a
		}
		if !slices.Contains(a.uids, uid) {
			a.uids = append(a.uids, uid)
		}
		return a
	}
	for _, p := range pods {
		add(p.Namespace, p.Name, p.UID).spec = &p
	}
	for _, c := range begun {
		add(c.Namespace, c.Pod, c.PodUID).begun = true
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b *asked) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
}

// complete reports whether each container has all the ids that it asks for. What an init container that is not
// restartable holds is never told.
func complete(p sharing.Pod, ids heldIDs) bool {
	for _, c := range p.Containers {
		if c.Kind == sharing.ContainerInit {
			continue
		}
		has := ids[sharing.ContainerRef{Namespace: p.Namespace, Pod: p.Name, Container: c.Name}]
		for resource, amount := range c.Limits {
			if n, err := strconv.Atoi(amount); err != nil || len(has[resource]) != n {
				return false
			}
		}
	}
	return true
}
