// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package entry moves a running process into its grant's cgroup and leaves no gap in which it could take uncapped GPU
// memory.
//
// A driver charges memory to the cgroup that the process is in when it allocates. So memory that a process takes
// before the move counts against no cap, and one look at the process before the move proves nothing: another thread
// takes the memory between the look and the move. Package entry looks after the move, while the process stands still:
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
