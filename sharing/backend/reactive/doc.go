// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package reactive decides what is done about processes that hold more of a GPU than their grant allows,
// where nothing stops them beforehand. It is given what was seen of the GPUs, the caps, the policy and the
// time, and answers with verdicts and with when to look again.
//
// It promises:
//   - nothing is done about a grant before two samples in a row have seen it over its cap on the same GPU, and
//     no process is named that was not in both, under the same pid and start time;
//   - one victim rule: of the grant's processes on that GPU, the one that holds the most of it; of equals the
//     one that started last, then the one with the highest pid. What a process that was named already still
//     holds counts as returned, so that one process too many is never named;
//   - a process of a grant that MPS holds, which two samples in a row have seen beside MPS, is over its cap by itself:
//     nothing limits it, whatever it holds;
//   - where the use of one process of a grant is not told, the grant is unknown on that GPU, and nothing is done about
//     what it holds;
//   - what processes held that have ended counts for their grant, and is compared with the other uses by the victim rule. The
//     victims are then the grant's processes that keep it. Nothing is ended for what is only inferred to be the grant's.
//
// It does no I/O, has no clock and no goroutine, and kills nothing itself. Not promised: that a grant never
// exceeds its cap. It does, for as long as it takes to see it twice, and what it took may have been somebody's.
package reactive
