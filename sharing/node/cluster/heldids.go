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

// podResources is kubelet as far as assignedIDs asks it (internal/kubelet).
type podResources interface {
	Get(ctx context.Context, namespace, pod string) (heldIDs, error)
	List(ctx context.Context) (heldIDs, error)
}

// heldIDs are ids of Kerf's resources: per container (without PodUID) and full name of the resource.
type heldIDs = map[sharing.ContainerRef]map[string][]string

// assignedIDs finds out for the device plugin which containers hold which IDs. Kubelet's List could take the IDs of a
// pod that kubelet admits at the same time. So it asks for each pod separately.
//
// It asks for the pods that may have ids. Those are the pods that the container runtime knows, and those of the API
// server that request Kerf's resources and have not ended. The second are more: kubelet gives a pod its ids before the
// container runtime knows the pod's sandbox. Minutes may pass between the two if a volume is attached.
//
// Kubelet answers all its clients together a hundred times a second. So an answer is kept until the container runtime
// no longer knows the pod and the pod has ended. The ids of a pod never change once it is admitted, whatever restarts.
// Two conditions apply:
//
//   - The container runtime knows the pod. Else the answer could be of an earlier pod with the name: kubelet does not
//     say which.
//   - The answer is complete: each container has as many ids as the pod's spec requests. While kubelet admits a pod, it
//     has given out ids to some containers, or to none.
//
// For some milliseconds, kubelet can know a pod that the API server's watch has not reported. Its IDs look free. This
// loses no memory and grants none twice: kubelet checks the health of an ID when it admits a pod, not when a container
// starts. The set of unhealthy IDs does not change when pods arrive, only when hardware is lost. Unhealthy free IDs are
// the highest, and kubelet assigns the lowest first. The next call corrects the set. The ledger decides about GPU
// memory, not the IDs.
//
// Where kubelet has no such question (before 1.34 as a rule), it is asked for its list. The zero value with its
// functions set is ready; it is for one goroutine.
type assignedIDs struct {
	kubelet podResources
	// pods are those of the node that ask for Kerf's resources and are not at their end; false while that is not known.
	pods func() ([]sharing.Pod, bool)
	// begun are containers of the pods whose sandbox kubelet has had made here, with a grant or without room.
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

// List says who holds what; see deviceplugin.PodResources. It returns the errors of kubelet's adapter. It returns
// sharing.ErrUnavailable until the API server has been read, or if kubelet does not know a pod that it must have.
func (h *assignedIDs) List(ctx context.Context) (map[sharing.ContainerRef]map[string][]string, error) {
	pods, synced := h.pods()
	if !synced {
		return nil,
			fmt.Errorf("ask kubelet who holds which id: the node's pods have not been read from the API server yet: %w",
				sharing.ErrUnavailable)
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
				// Kubelet had the pod's sandbox created. If it does not know the pod now, it has restarted and has not
				// read its pods yet.
				return nil, fmt.Errorf("kubelet does not know a pod that it has begun; it may be starting: %w (%w)",
					err, sharing.ErrUnavailable)
			case errors.Is(err, sharing.ErrNotFound):
				continue // kubelet does not know the pod yet, or not any more
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

// complete reports whether each container has all the ids that it asks for. Kubelet never reports the IDs of an init
// container that is not restartable.
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
