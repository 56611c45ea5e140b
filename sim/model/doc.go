// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package model is the state of a simulated node's GPUs: which process uses what memory, which limits stand, what is
// broken. It is a state machine without I/O, clock or goroutine. Its owner, package daemon, supplies time, process ids
// and cgroups, and calls it from one goroutine at a time.
//
// It promises:
//   - On each GPU and MIG instance the memory in use never passes what is usable.
//   - What is charged to a limit when memory is taken never passes its hard limit.
//   - Closing a client gives back everything that it alone used.
//   - A call that returns an error has changed nothing.
//
// How limits behave:
//   - An allocation is charged to limited cgroups above its process at the time of the allocation: with Misc to the
//     nearest one, with Dmem to all of them. It stays charged there when the process moves. A limit does not count what
//     was allocated before it was set. That includes a limit that was cleared and set again.
//   - A hard limit below present use is refused with Misc; with Dmem it is taken, and refuses what comes after.
//   - A soft limit is kept and shown, and does nothing.
//
// Memory that other clients import lives until the last of them, and of the files that stand for it, has let it go. It
// is charged until then to whom it was charged when it was made. See Import and Export.
//
// Managed memory is charged to no limit. Its pages on the GPU are in the GPU's use and in no process's, and give way to
// any other allocation. NVIDIA's driver does the same: a process's number is the sum of the memory objects of its RM
// clients. UVM takes its pages below those (open-gpu-kernel-modules 580.142, gpu_rmapi.c and uvm_pmm_gpu.c).
//
// An MPS server uses the GPU for its clients: with its end their memory is gone, and all that they ask for answers
// ServerGone. A client's own limit and share of the threads apply to its process. Launches of its clients run at the
// same time.
//
// Clients use a GPU in turn, each for a time slice, where the GPU has one. A launch then ends by the client's clock,
// which stands still while another client has its turn: see Clock. Kernels of one client run at the same time if the
// GPU has threads for them. Copies share the bandwidth. Without a time slice, work runs in the order of its launches,
// whatever its stream.
//
// A lost GPU answers Lost to everything. Its memory in use is gone at once; limits stay. When it comes back it is as
// after a reset, which destroys MIG instances.
//
// It does not promise the timing of a real GPU.
package model
