// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeserver is the node API's server side: gRPC on a unix socket, over the node runtime.
//
// It promises that who calls is the kernel's word (the socket's peer credentials), taken when the connection
// was made, and never a field of a message; and that every error of the runtime reaches the caller as one
// status code with a text for people.
//
// Who may connect is decided by the socket file's owner, group and mode, not here.
package nodeserver
