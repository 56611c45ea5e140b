// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package entry moves a running process into its grant's cgroup and leaves no gap in which it could take uncapped GPU
// memory.
//
// A driver charges memory to the process's cgroup at the time of the allocation. So memory from before the move counts
// against no cap. A check before the move proves nothing: another thread can allocate between the check and the move.
// Package entry checks after the move, while the process is stopped:
//
//  1. It notes in the group where the process comes from (a mark), and freezes the empty group.
//  2. It moves the process, which stops all of its threads.
//  3. It waits until the kernel reports that all threads have stopped.
//  4. It calls Check, which rejects a process that can have taken GPU memory already.
//  5. It thaws the group.
//
// If a step before the last fails, the process returns to its former group and continues unharmed. If the agent dies
// before the last step, the process stays frozen until the next agent calls Recover, which returns it too.
//
// It does not promise that Check sees everything: what Find looks for is in its comment.
package entry
