// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package client is what kerf-hook does: Activate reads the OCI state of a container, passes the container's id and
// pid on to the agent and does what the agent says. While there is no agent, or the agent says that it is not ready,
// it tries again until Options.Wait is over, because a start that failed is final for some containers.
//
// Promised: it takes nothing of the state but id, status and pid. It believes only an agent of its own user. It opens
// nothing but the socket, starts no process, and needs only the standard library and the messages (package wire).
//
// Not promised: that what the agent has done is undone when the hook is killed or a later hook fails. The agent sees a
// container without processes and cleans up by itself.
package client
