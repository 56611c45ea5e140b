// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import "github.com/kerf-gpu/kerf/sharing/allocator/cluster"

// scorer is Kerf's policy, with a workload that it knows or learns.
type scorer interface {
	cluster.Policy
	cluster.Leaver
	ScoreOn(n *cluster.Node, s cluster.Shape, gpus ...int) int64
}

// KerfScore takes the node with Kerf's best score for the GPU that kube-scheduler's allocator takes on it.
type KerfScore struct {
	scorer

	devices *allocator
}

// Score implements cluster.Policy. An error of the allocator gives GPU -1, which Cluster.Take rejects.
func (k *KerfScore) Score(n *cluster.Node, s cluster.Shape) (int64, int) {
	if s.GPUs == 0 {
		return k.scorer.Score(n, s)
	}
	gpus, err := k.devices.gpus(n, s)
	switch {
	case err != nil || len(gpus) == 0:
		return 0, -1
	case s.GPUs > 1:
		return k.ScoreOn(n, s, gpus...), 0
	}
	return k.ScoreOn(n, s, gpus...), gpus[0]
}

// Learn implements cluster.Learner.
func (k *KerfScore) Learn(r cluster.Request) bool {
	l, ok := k.scorer.(cluster.Learner)
	return ok && l.Learn(r)
}
