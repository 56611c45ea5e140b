// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package exec carries out plans on a GPU's MIG instances, so that a crash at any step leaves what a restart can finish
// or undo.
//
// For each GPU there is a journal: which instances are Kerf's, and of a change under way what was there, what is
// wanted, and the call that is about to be made. It is written and flushed before each call to the driver, never
// after the fact. At start Recover compares it with what the driver reports: a change is finished, else undone, else
// the GPU is in trouble, with the reason, and nothing more is done to it until Recover succeeds. After a reboot the
// layout is made again.
//
// Promises:
//   - An instance is destroyed only if Kerf made it and nobody who is asked says that it is held. An instance is known
//     again by its place, its id and the UUID of its MIG device; one that somebody made by hand at the same place is
//     not taken for it.
//   - No call that changes something is made before the journal says so: on a full disk nothing is touched.
//   - A journal that is damaged, or of a newer program, is not guessed at: the GPU is left alone until it is empty.
//   - Recover and Apply may be cut off anywhere and called again.
//
// Not promised: to tell an instance without a compute instance that somebody makes by hand at the very place where
// Kerf is about to make one, if Kerf is killed in that moment. Two executors on one directory: whoever makes one holds
// the directory's lock. A GPU is never reset by this package, but a MIG mode that is set before Hopper may reset it,
// which SetMode does only where it is allowed.
package exec
