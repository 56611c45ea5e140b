// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// PodRequest is what a pod requests.
type PodRequest struct {
	UID, Namespace, Name string
	// Priority is the pod's.
	Priority int32
	//
	// Containers are its containers that request a share, in the order in which they are placed. First come those that
	// run at the same time, then the init containers, larger ones first. A node's agent uses the same order.
	Containers []ContainerRequest
	// CPU and Memory are what it asks of the machine. They decide nothing here but how well a node suits.
	CPU    cluster.Milli
	Memory sharing.Bytes
	// Limits are the totals that the pod takes of each of the node's resources, as a node offers them.
	Limits map[string]int64
	// key is equal for pods that request the same.
	key string
}

// Class is equal for pods that every node answers alike, whatever they are called and however important they are.
func (w PodRequest) Class() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d\n", w.Namespace, w.CPU)
	for _, name := range slices.Sorted(maps.Keys(w.Limits)) {
		fmt.Fprintf(&b, "%s %d\n", name, w.Limits[name])
	}
	b.WriteString(w.key)
	return b.String()
}

// ContainerRequest is what one container requests.
type ContainerRequest struct {
	Container string
	Kind      sharing.ContainerKind
	// Request is what the pod's spec and annotations say; no profile or pool has completed it. Of a container whose cap
	// others share it has the amounts of all of them, and they have no ContainerRequest.
	Request sharing.Request
	// sharedCap is true if other containers share its cap.
	sharedCap bool
}

// String returns "namespace/name".
func (w PodRequest) String() string { return w.Namespace + "/" + w.Name }

// PodRequestOf reads what a pod requests; false when it asks for nothing of Kerf's. The error has every problem, each a
// *sharing.FieldError.
func PodRequestOf(p sharing.Pod) (PodRequest, bool, error) {
	w := PodRequest{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Priority: p.Priority, Limits: map[string]int64{}}
	var errs []error
	var asks []sharing.ContainerRequest
	inits := map[string]int64{}
	for _, c := range p.Containers {
		if len(c.Limits) == 0 {
			continue
		}
		r, ok, err := sharing.RequestFromResources(c.Limits, p.Annotations, c.Name)
		if err != nil {
			errs = append(errs, fmt.Errorf("container %q: %w", c.Name, err))
			continue
		}
		if !ok {
			continue
		}
		asks = append(asks, sharing.ContainerRequest{
			Ref: sharing.ContainerRef{Container: c.Name}, Kind: c.Kind, Request: r,
			With: sharing.ShareWith(p.Annotations, c.Name),
		})
		for _, a := range sharing.ResourceRequestsOf(c.Limits) {
			name := sharing.Domain + "/" + a.Resource
			if c.Kind == sharing.ContainerInit {
				inits[name] = max(inits[name], int64(a.Count))
			} else {
				w.Limits[name] += int64(a.Count)
			}
		}
	}
	if len(errs) > 0 {
		return PodRequest{}, true, errors.Join(errs...)
	}
	asks, err := sharing.MergeSharedCaps(asks)
	if err != nil {
		return PodRequest{}, true, err
	}
	for _, a := range asks {
		if a.With != "" {
			continue // it is where that one is, whose request has its amounts
		}
		one := ContainerRequest{Container: a.Ref.Container, Kind: a.Kind, Request: a.Request}
		if a.SharedCap.GPUs > 0 {
			one.Request, one.sharedCap = a.SharedCap, true
		}
		w.Containers = append(w.Containers, one)
	}
	for name, n := range inits {
		w.Limits[name] = max(w.Limits[name], n)
	}
	slices.SortStableFunc(w.Containers, func(a, b ContainerRequest) int {
		x, y := a.Request, b.Request
		if a.Kind != sharing.ContainerInit || b.Kind != sharing.ContainerInit {
			return int(a.Kind/sharing.ContainerInit) - int(b.Kind/sharing.ContainerInit)
		}
		return cmp.Or(cmp.Compare(y.GPUs, x.GPUs), cmp.Compare(y.Memory, x.Memory), cmp.Compare(y.Percent, x.Percent))
	})
	w.key = keyOf(w.Containers)
	return w, len(w.Containers) > 0, nil
}

// keyOf is equal for equal asks, whatever the names of their containers.
func keyOf(asks []ContainerRequest) string {
	var b strings.Builder
	for _, a := range asks {
		r := a.Request
		fmt.Fprintf(&b, "%d %d %d %d %d %d %d %q %q %q %q %t\n", a.Kind, r.Kind, r.Memory, r.Percent, r.GPUs,
			r.MinLevel, r.Place, r.Models, r.UUIDs, r.Profile, r.MIG, a.sharedCap)
	}
	return b.String()
}
