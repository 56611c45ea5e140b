// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package listing decides to whom each entry of a driver's process list belongs.
//
// A driver names a process by its pid alone. It frees memory when the last descriptor of its files closes, so it lists a
// process that has ended for as long as a forked child has them open. Meanwhile the kernel may give the pid to another
// process. A List follows one GPU from look to look and remembers which process each entry was about.
//
// It promises:
//   - An entry belongs to a process that runs only if that process had the GPU's device file open when it was identified,
//     and did not start after the entry was first seen.
//   - What a process held when it ended stays charged to the grant that it was in, until the driver lists its pid no more.
//   - If a process with the pid of one that has ended uses the GPU, too, and the two are not of one grant, the entry is
//     unclear for the grants of both.
//   - An entry whose process cannot be read is unclear. Nothing unclear is ever counted as a grant's or as nobody's.
//
// It is pure: the kernel's answers come through an interface, and the time is given. Not promised: to see that a pid was
// given to another process between two looks, if that one uses the GPU, too, and the first was never seen.
package listing
