// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import "github.com/kerf-gpu/kerf/sharing/allocator/cluster"

// NewKerf is the policy of kerf-scheduler. Pods are the usual workload; where there are none, the policy learns it from what
// arrives.
func NewKerf(nodes []cluster.Node, pods []Pod) cluster.Policy {
	if len(pods) == 0 {
		return cluster.NewOnline(nodes)
	}
	return cluster.NewKerf(WorkloadOf(pods), nodes)
}

// WorkloadOf is the workload of which the pods are a sample.
func WorkloadOf(pods []Pod) cluster.Workload {
	requests := make([]cluster.Request, len(pods))
	for i := range pods {
		requests[i] = pods[i].Request
	}
	return cluster.NewWorkload(requests)
}
