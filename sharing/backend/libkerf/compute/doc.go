// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package compute decides how much of a GPU's time each grant on it may use next. A grant has a budget, GPU time in
// nanoseconds, from which what its programs run is charged; while it is above zero they may launch. At each step the
// controller is told what the budgets hold, what was charged and, where the driver tells it, what was really used,
// and answers with what to add to each budget.
//
// It promises:
//   - what is added in a step is never more than the time that has passed, at the rate at which GPU time is charged;
//   - a grant's own share, its percent of that time, is added whatever the others do, as long as its budget is not
//     full; debts are carried over, and paid from it;
//   - a budget is full at a tenth of a second of the share, so that what was not used is not saved up;
//   - strict: nothing else is ever added. Fair: the time that nobody's share takes is lent to budgets that have room,
//     to the highest priority first and within one by share. An idle grant's share is lent at once, and is its own again
//     at the first step after it has begun to use its budget, which was full; what a running grant leaves of its share
//     is lent bit by bit, and only while the GPU has more idle time than programs make that are late for their next
//     launch. What was launched and can still be running is no idle time, and its grant is not idle;
//   - that rate is 1 until a driver's samples contradict it. A driver does not count: it samples, some seven times in a second,
//     which one process is on the GPU. What ten seconds of samples say of a tenth of a GPU is easily off by a third. So a rate
//     is moved only out of what the samples of some minutes almost certainly exclude, slowly, and no further, and the balance
//     is left alone: charges that are right are never made wrong by samples, and those that are wrong by little stay so;
//   - Samples tells what part of the time a grant used, with its error, or that it is not known.
//
// It does no I/O, has no clock and no goroutine. Not promised: that a kernel is short. One that runs longer than the
// budget holds makes a debt, and holds up whoever waits for the GPU until it ends.
package compute
