// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package oci is the side of the OCI runtime: Server answers kerf-hook, which asks before a container's
// program runs whether its cap is in force, and Patch puts the hook, the GPUs and the environment of a grant
// into an OCI spec for containers that are no pod's.
//
// Promised: only root is answered; each question is answered within a time that the hook waits for; the
// answer is yes only when the Armer says so without an error; Patch changes a spec as a whole or not at all,
// and without looking at the machine.
//
// Not promised: that the asker still waits when the answer is yes. What was armed for a container that never
// ran ends as every lease does, when its cgroup has no process.
package oci
