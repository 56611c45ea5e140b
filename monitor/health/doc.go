// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package health decides what is known of a GPU's hardware from probes, XID events, what its sensors tell and the
// driver's own recovery action.
//
// It promises that a Machine is pure, and that it marks exactly the GPU that a fault is on; that a fault which an
// application causes itself marks nothing; that no fault is forgotten because many came at once; that each state which is
// not healthy says why and what to do; and that a GPU comes back by itself once nothing is wrong any more and enough
// probes in a row were clean: more of them for one that goes back and forth.
//
// It does not probe: the caller feeds it. It does not act on grants: the ledger refuses new claims on a GPU that is not
// healthy, and what becomes of running ones is the runtime's.
package health
