// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package reactive decides what to do about processes over the cap of their grant, where no other backend enforces
// it. Its input is samples of the GPUs, caps, policy and time. Its output is verdicts, and the time of the next
// sample.
//
// Guarantees:
//   - It acts on a grant only after two samples in a row show it over its cap on the same GPU. It names only processes
//     that were in both, with the same PID and start time.
//   - The victim is the grant's process with the most memory of that GPU; of equals the one that started last, then the
//     highest PID. Memory of a victim that was named already counts as returned, so that no victim is superfluous.
//   - A process outside of the MPS that enforces its grant is over its cap after two samples in a row, because nothing
//     limits it.
//   - If the usage of one process of a grant is unknown, the grant is unknown on that GPU, and nothing is done.
//   - Memory of ended processes counts for their grant. The victims are then the grant's processes that keep it. Memory
//     that is only inferred to be the grant's ends no process.
//
// It has no I/O, clock or goroutine, and kills nothing. It does not guarantee that a grant never exceeds its cap:
// that takes two samples to see, and the memory may have been another grant's.
package reactive
