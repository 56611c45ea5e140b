// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kerf-gpu/kerf/sharing"
)

// allocatable is a kubelet that knows what all plugins hand out.
type allocatable struct {
	fake
	devices []*podresources.ContainerDevices
}

func (a *allocatable) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (
	*podresources.AllocatableResourcesResponse, error) {
	return &podresources.AllocatableResourcesResponse{Devices: a.devices}, nil
}

func TestOthers(t *testing.T) {
	c, socket := open(t)
	if _, err := c.Others(t.Context()); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("no kubelet: %v", err)
	}
	a := &allocatable{devices: []*podresources.ContainerDevices{devices("nvidia.com/gpu", "GPU-b"),
		devices(sharing.ResourceGPU, "u1"), devices("nvidia.com/gpu", "GPU-a")}}
	startServer(t, socket, a)
	// until there is a new connection
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		got, err := c.Others(t.Context())
		if errors.Is(err, sharing.ErrUnavailable) {
			continue
		}
		if d := cmp.Diff(map[string][]string{"nvidia.com/gpu": {"GPU-a", "GPU-b"}}, got); d != "" || err != nil {
			t.Errorf("%v\n%s", err, d)
		}
		return
	}
	t.Error("kubelet is not found")
}
