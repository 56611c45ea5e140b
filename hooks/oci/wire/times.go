// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

// The times of one start hook. Each is longer than the next, so that the inner step reports its error before the outer
// step ends it.
const (
	// HookTimeout is the timeout in the container's spec, after which the OCI runtime kills the hook.
	HookTimeout = 120 * time.Second
	// HookDeadline is the time after which the hook ends by itself, with its error.
	HookDeadline = HookTimeout / 2
	// HookAttempt bounds one question of the hook to the agent.
	HookAttempt = HookDeadline / 2
	// HookAnswer bounds the activation that answers a question. Afterwards the agent says that it is not ready.
	HookAnswer = HookAttempt - 5*time.Second
)
