// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package compute decides how much of a GPU's time each grant on it may use next. A grant has a budget: GPU time in
// nanoseconds, charged with what its programs run. While it is above zero, they may launch. At each step the controller
// gets the budgets, what was charged and, if the driver reports it, what was really used. It returns what to add to
// each budget.
//
// It promises:
//   - what is added in a step is never more than the time that has passed, at the rate at which GPU time is charged;
//   - A grant's own share, its percent of that time, is added whatever the others do, as long as its budget is not
//     full. Debts are carried over, and paid from it;
//   - a budget is full at a tenth of a second of the share, so that what was not used is not saved up;
//   - strict: nothing else is ever added. Fair: time that belongs to no share goes to budgets that are not full,
//     highest priority first and within one by share. The share of an idle grant goes to others at once. It returns at
//     the first step after the grant begins to use its budget, which was full. Unused time of a running grant goes to
//     others in small steps. It does so only while the GPU has more idle time than programs with a late launch cause. A
//     launch that can still be running is not idle time, and its grant is not idle. A grant whose launches follow each
//     other without a pause keeps its share. It uses less only because others keep the GPU busy;
//   - a grant whose launches take a millisecond or more gets turns alone. The first is 200 ms after it began to run
//     together with others. Later ones are rarer, up to 16 seconds apart. In a turn all others hold for 200 ms at
//     most, so that libkerf can measure;
//   - that rate is 1 until a driver's samples contradict it. A driver does not count. Some seven times in a second it
//     samples which one process is on the GPU. What ten seconds of samples say of a tenth of a GPU is easily off by a
//     third. So a rate moves slowly, and only as far as the samples of some minutes almost certainly exclude it. The
//     balance stays as it is. Right charges are never made wrong by samples, and those that are wrong by little stay
//     so;
//   - Samples tells what part of the time a grant used, with its error, or that it is not known.
//
// It does no I/O, has no clock and no goroutine. Not promised: that a kernel is short. One that runs longer than the
// budget causes a debt, and delays the other grants of the GPU until it ends.
package compute
