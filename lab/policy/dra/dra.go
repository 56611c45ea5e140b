// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package dra has the placement of pods that get GPUs by ResourceClaim. The devices are those that Kerf's agents
// publish, in their order. kube-scheduler's allocator chooses among them.
//
// It simplifies. A GPU has 1,000 GiB, so that each request is an exact amount of memory. Agents publish a new order at
// once. GPUs in MIG mode are not supported. Preemption, batching of equal pods and the bound of pods on a node are left
// out.
package dra

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// The policies.
const (
	firstFit  = "dra-firstfit"
	kerfScore = "dra-kerf"
)

// Policies are the names that New knows.
func Policies() []string { return []string{firstFit, kerfScore} }

// New is the policy of that name. Pods are the usual workload of Kerf's score. The seed decides among equal nodes.
func New(name string, nodes []cluster.Node, pods []simulate.Pod, seed int64) (cluster.Policy, error) {
	if slices.ContainsFunc(nodes, func(n cluster.Node) bool { return n.Table != nil }) {
		return nil, fmt.Errorf("policy %q: GPUs in MIG mode are not supported", name)
	}
	switch name {
	case firstFit:
		//nolint:gosec // every bit of the seed counts, its sign is none
		return &FirstFit{devices: newAllocator(), random: uint64(seed)}, nil
	case kerfScore:
		if of, ok := simulate.NewKerf(nodes, pods).(scorer); ok {
			return &KerfScore{scorer: of, devices: newAllocator()}, nil
		}
		return nil, errors.New("policy kerf has no score for one GPU")
	}
	return nil, fmt.Errorf("policy %q: not one of %v", name, Policies())
}
