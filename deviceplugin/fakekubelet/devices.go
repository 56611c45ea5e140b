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

// Count is a resource's capacity and what of it is allocatable. A resource that no plugin has told of has
// neither.
func (k *Kubelet) Count(resource string) (capacity, allocatable int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices[resource] {
		if d.GetHealth() == pluginapi.Healthy {
			allocatable++
		}
	}
	return len(k.devices[resource]), allocatable
}

// Unhealthy are the ids of a resource that are, in order.
func (k *Kubelet) Unhealthy(resource string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []string
	for id, d := range k.devices[resource] {
		if d.GetHealth() != pluginapi.Healthy {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// Devices are a resource's devices by id. They are not to be changed.
func (k *Kubelet) Devices(resource string) map[string]*pluginapi.Device {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.devices[resource])
}

// Updates is how many lists of the resource were taken.
func (k *Kubelet) Updates(resource string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.updates[resource]
}

// Plugins is how many plugins of a resource are connected.
func (k *Kubelet) Plugins(resource string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.plugins[resource])
}

// Admit gives a container n ids of a resource and returns the CDI names that its runtime would get. A failure
// is final for the pod, as it is with kubelet. A container that has its ids is not allocated for again, but
// refused when one of them is not healthy.
func (k *Kubelet) Admit(ctx context.Context, ref sharing.ContainerRef, resource string, n int) ([]string, error) {
	ref.PodUID = ""
	k.mu.Lock()
	p := k.primary[resource]
	mine := k.held[ref][resource]
	used := map[string]bool{}
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
			return nil, fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", resource)
		}
	}
	if p == nil || len(mine) == 0 && len(free) < n {
		k.mu.Unlock()
		return nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", resource, n, len(free))
	}
	if len(mine) == 0 {
		// The order of a map is no order, as with kubelet.
		mine = free[:n]
		if k.held[ref] == nil {
			k.held[ref] = map[string][]string{}
		}
		k.held[ref][resource] = mine
	}
	k.mu.Unlock()
	resp, err := p.api.Allocate(ctx, &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: mine}}})
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

// Release forgets what a container holds.
func (k *Kubelet) Release(ref sharing.ContainerRef) {
	ref.PodUID = ""
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, ref)
}

// Prepare is what comes before every start of a container that was admitted: PreStartContainer for each of
// its resources.
func (k *Kubelet) Prepare(ctx context.Context, ref sharing.ContainerRef) error {
	ref.PodUID = ""
	k.mu.Lock()
	held := maps.Clone(k.held[ref])
	primary := maps.Clone(k.primary)
	k.mu.Unlock()
	for resource, ids := range held {
		p := primary[resource]
		if p == nil {
			return errors.New("endpoint has been stopped")
		}
		if !p.options.GetPreStartRequired() {
			continue
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

// List is what podresources tells: who holds which ids.
func (k *Kubelet) List(context.Context) (map[sharing.ContainerRef]map[string][]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.srv == nil {
		return nil, fmt.Errorf("kubelet is not running: %w", sharing.ErrUnavailable)
	}
	out := make(map[sharing.ContainerRef]map[string][]string, len(k.held))
	for ref, held := range k.held {
		out[ref] = make(map[string][]string, len(held))
		for resource, ids := range held {
			out[ref][resource] = slices.Sorted(slices.Values(ids))
		}
	}
	return out, nil
}

// Client reaches the plugin that is asked for a resource now, nil where there is none.
func (k *Kubelet) Client(resource string) pluginapi.DevicePluginClient {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.primary[resource]; p != nil {
		return p.api
	}
	return nil
}
