// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests Kerf on a real Kubernetes: one node with etcd, the API server, kubelet, containerd and runc,
// all of them real, and GPUs that are simulated. node/node.sh makes the node; the tests drive it as users and
// administrators do, and compare what containers see with what the simulated driver holds.
//
// It promises that a test which passed has seen both; that tests leave the node as they found it; and that a
// failed one leaves what is needed to understand it in .cache/e2e/failures. It cannot show what only a real GPU
// can: CUDA itself, and timing.
//
// "make e2e" at the top of the tree runs it. While working on it, keep the node up:
//
//	test/e2e/node/node.sh up
//	cd test/e2e && go test -run TestFraction ./...
package e2e
