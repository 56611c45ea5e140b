// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package keep holds a node's GPUs to what its pool wants of MIG, and cuts instances for claims.
//
// A Manager recovers each GPU, sets its MIG mode, makes fixed layouts, answers what a GPU could give to a request,
// makes the instance that was chosen, and takes idle ones away when they have been kept for long enough. Whatever it
// does to a GPU, package exec does for it: journalled, and never to what is held or was made by others.
//
// Promises: Offer asks no driver, so that it may be called with a lock held; what it offers overlaps no claim that it
// was told of. A GPU that cannot be recovered is told as one in trouble, and gives nothing, while the others go on.
// Nothing is done twice at once on one GPU.
//
// Not promised: that what was offered is there a moment later. Ensure makes it, or says why it cannot.
package keep
