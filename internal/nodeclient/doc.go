// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeclient asks the agent of this machine over its unix socket.
//
// It promises that every call ends by itself (each has a deadline, and a watch ends when pictures stop
// coming), that every error is one plain sentence which wraps the vocabulary of package sharing, and that
// it tells apart an agent that is not there, one that is restarting, one that went away in the middle of a
// call and one that answered with a refusal.
//
// It does not repeat a call by itself: after an agent went away in the middle of a call nobody knows
// whether the call took effect, and only the caller knows what is safe then.
package nodeclient
