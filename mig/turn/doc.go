// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package turn decides which idle GPUs change between MIG mode and being shared or given whole, because somebody asks for
// what no GPU gives as they are.
//
// It is pure: what is there, what found no room and what time it is go in, and what is to be turned comes out. It
// promises that only a GPU is turned that its pool leaves to demand, that is idle, and whose mode is as old as the pool
// wants a mode to be kept; that nothing is turned in vain; and that of those who wait the one who has waited longest is
// served first.
//
// Not promised: that a GPU is still idle when it is turned. Who turns it looks again.
package turn
