// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kerf-gpu/kerf/sharing"
)

// preStart is kubelet's own limit.
const preStart = 30 * time.Second

// podOf is a container's pod.
func podOf(ref sharing.ContainerRef) sharing.ContainerRef {
	return sharing.ContainerRef{Namespace: ref.Namespace, Pod: ref.Pod}
}

// Admit gives a container n ids of a resource and returns the CDI names that its runtime would get. A failure is final
// for the pod, as it is with kubelet. A container that has its ids is not allocated for again, but refused when one of
// them is not healthy. The ids stay secret until the plugin has answered.
func (k *Kubelet) Admit(ctx context.Context, ref sharing.ContainerRef, resource string, n int) ([]string, error) {
	ref.PodUID = ""
	k.mu.Lock()
	k.pods[podOf(ref)] = true // kubelet knows a pod before it admits it
	p := k.primary[resource]
	mine := k.held[ref][resource]
	used := maps.Clone(k.chosen[resource])
	if used == nil {
		used = map[string]bool{}
	}
	for _, held := range k.held {
		for _, id := range held[resource] {
			used[id] = true
		}
	}
	var free []string
	for id, d := range k.devices[resource] {
		if d.GetHealth() == pluginapi.Healthy && !used[id] {
			free = append(free, id)
		}
	}
	for _, id := range mine {
		if d := k.devices[resource][id]; d.GetHealth() != pluginapi.Healthy {
			k.mu.Unlock()
			return nil,
				fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s",
					resource)
		}
	}
	if p == nil || len(mine) == 0 && len(free) < n {
		k.mu.Unlock()
		return nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", resource,
			n, len(free))
	}
	if len(mine) == 0 {
		// The order of a map is no order, as with kubelet.
		mine = free[:n]
	}
	if k.chosen[resource] == nil {
		k.chosen[resource] = map[string]bool{}
	}
	for _, id := range mine {
		k.chosen[resource][id] = true
	}
	k.mu.Unlock()
	resp, err := p.api.Allocate(ctx, &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: mine}}})
	k.mu.Lock()
	for _, id := range mine {
		delete(k.chosen[resource], id)
	}
	if err == nil {
		if k.held[ref] == nil {
			k.held[ref] = map[string][]string{}
		}
		k.held[ref][resource] = mine
		if k.admitted[ref] == nil {
			k.admitted[ref] = map[string]bool{}
		}
		k.admitted[ref][resource] = true
	}
	k.mu.Unlock()
	if err != nil {
		k.Release(ref)
		return nil, err
	}
	var names []string
	for _, c := range resp.GetContainerResponses() {
		for _, d := range c.GetCdiDevices() {
			names = append(names, d.GetName())
		}
	}
	return names, nil
}

// Release forgets what a container holds, and its pod with the last one.
func (k *Kubelet) Release(ref sharing.ContainerRef) {
	ref.PodUID = ""
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, ref)
	delete(k.admitted, ref)
	for other := range k.admitted {
		if podOf(other) == podOf(ref) {
			return
		}
	}
	delete(k.pods, podOf(ref))
}

// Prepare is what comes before every start of a container that was admitted: PreStartContainer for each of
// its resources.
func (k *Kubelet) Prepare(ctx context.Context, ref sharing.ContainerRef) error {
	ref.PodUID = ""
	k.mu.Lock()
	held, admitted := maps.Clone(k.held[ref]), maps.Clone(k.admitted[ref])
	primary := maps.Clone(k.primary)
	k.mu.Unlock()
	for resource := range admitted {
		p, ids := primary[resource], held[resource]
		if p == nil {
			return errors.New("endpoint has been stopped")
		}
		if !p.options.GetPreStartRequired() {
			continue
		}
		if len(ids) == 0 {
			return fmt.Errorf("no devices found allocated in local cache for pod %s, container %s, resource %s",
				ref.Pod, ref.Container, resource)
		}
		ctx, cancel := context.WithTimeout(ctx, preStart)
		_, err := p.api.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: ids})
		cancel()
		if err != nil {
			return fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
		}
	}
	return nil
}

// Counted has f called within each List, when the pods have been counted and before the ids of all others are cleared.
// A nil f removes it.
func (k *Kubelet) Counted(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counted = f
}

// Lists is how often List was called.
func (k *Kubelet) Lists() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lists
}

// List is what podresources tells of all pods: who holds which ids. As with kubelet, a pod that is admitted meanwhile
// loses its ids.
func (k *Kubelet) List(context.Context) (map[sharing.ContainerRef]map[string][]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.srv == nil {
		return nil, fmt.Errorf("kubelet is not running: %w", sharing.ErrUnavailable)
	}
	k.lists++
	if counted, pods := k.counted, maps.Clone(k.pods); counted != nil {
		k.mu.Unlock()
		counted()
		k.mu.Lock()
		maps.DeleteFunc(k.held, func(ref sharing.ContainerRef, _ map[string][]string) bool { return !pods[podOf(ref)] })
	}
	return k.tell(func(sharing.ContainerRef) bool { return true }), nil
}

// Get is what podresources tells of one pod; it only reads.
func (k *Kubelet) Get(_ context.Context, namespace, pod string) (map[sharing.ContainerRef]map[string][]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := sharing.ContainerRef{Namespace: namespace, Pod: pod}
	switch {
	case k.srv == nil:
		return nil, fmt.Errorf("kubelet is not running: %w", sharing.ErrUnavailable)
	case !k.pods[p]:
		return nil, fmt.Errorf("pod %s in namespace %s: %w", pod, namespace, sharing.ErrNotFound)
	}
	return k.tell(func(ref sharing.ContainerRef) bool { return podOf(ref) == p }), nil
}

// tell copies what some containers hold; the caller holds mu.
func (k *Kubelet) tell(of func(sharing.ContainerRef) bool) map[sharing.ContainerRef]map[string][]string {
	out := make(map[sharing.ContainerRef]map[string][]string, len(k.held))
	for ref, held := range k.held {
		if !of(ref) {
			continue
		}
		out[ref] = make(map[string][]string, len(held))
		for resource, ids := range held {
			out[ref][resource] = slices.Sorted(slices.Values(ids))
		}
	}
	return out
}
