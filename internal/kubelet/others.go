// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"slices"
	"strings"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kerf-gpu/kerf/sharing"
)

// Others returns the devices that device plugins other than Kerf's hand out on this node: per full name of the resource, the
// ids as the plugin gave them, in order. It takes 5 s at most, and does not try again. Its errors are those of List.
func (c *Client) Others(ctx context.Context) (map[string][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listDeadline)
	defer cancel()
	resp, err := c.lister.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the devices of all plugins at %q: %w", c.socket, plain(err))
	}
	out := map[string][]string{}
	for _, d := range resp.GetDevices() {
		if name := d.GetResourceName(); !strings.HasPrefix(name, sharing.Domain+"/") {
			out[name] = append(out[name], d.GetDeviceIds()...)
		}
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out, nil
}
