// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

// DaemonsOf is the cgroup in which the MPS daemons of grants run, relative to the hierarchy's mount as parent is.
func DaemonsOf(parent string) string { return parent + ".mps" }
