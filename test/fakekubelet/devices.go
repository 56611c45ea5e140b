// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"maps"
	"slices"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Count is a resource's capacity and what of it is allocatable. A resource that no plugin has reported has neither.
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

// Client reaches the plugin that is asked for a resource now, nil where there is none.
func (k *Kubelet) Client(resource string) pluginapi.DevicePluginClient {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.primary[resource]; p != nil {
		return p.api
	}
	return nil
}
