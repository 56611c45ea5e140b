// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package instances chooses, creates and shows the MIG instances of grants.
//
// Choose answers a request. A Reconciler creates the instances of containers before the containers wait for them, and
// tries again after a failure. It reports to the container runtime which instances containers have.
package instances
