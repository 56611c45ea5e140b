// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"slices"
	"strings"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kerf-gpu/kerf/sharing"
)

// held are the ids of Kerf's resources per container (without PodUID) and full name of the resource.
type held = map[sharing.ContainerRef]map[string][]string

// holdings turns kubelet's answer around. What has no name is a sign that the answer is not whole, and spoils
// all of it. Kubelet gives one entry for each id, or for each group of ids of one NUMA node.
func holdings(pods []*podresources.PodResources) (held, error) {
	out := make(held)
	for _, pod := range pods {
		if pod.GetName() == "" || pod.GetNamespace() == "" {
			return nil, fmt.Errorf("a pod without a name (%q in namespace %q): %w", pod.GetName(), pod.GetNamespace(), sharing.ErrInvalid)
		}
		for _, c := range pod.GetContainers() {
			ref := sharing.ContainerRef{Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: c.GetName()}
			if ref.Container == "" {
				return nil, fmt.Errorf("a container of pod %q without a name: %w", ref.Namespace+"/"+ref.Pod, sharing.ErrInvalid)
			}
			for _, d := range c.GetDevices() {
				resource := d.GetResourceName()
				if !strings.HasPrefix(resource, sharing.Domain+"/") {
					continue
				}
				if len(d.GetDeviceIds()) == 0 || slices.Contains(d.GetDeviceIds(), "") {
					return nil, fmt.Errorf("container %q: %s without an id: %w", ref, resource, sharing.ErrInvalid)
				}
				if out[ref] == nil {
					out[ref] = make(map[string][]string)
				}
				out[ref][resource] = append(out[ref][resource], d.GetDeviceIds()...)
			}
		}
	}
	for _, held := range out {
		for resource, ids := range held {
			slices.Sort(ids)
			held[resource] = slices.Compact(ids)
		}
	}
	return out, nil
}
