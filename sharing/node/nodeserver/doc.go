// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeserver is the node API's server side: gRPC on a unix socket, over the node runtime.
//
// It promises that the kernel identifies the caller (the socket's peer credentials at the connection), and never a
// field of a message. Every error of the node runtime reaches the caller as one status code with a text for people.
//
// Who may connect is decided by the socket file's owner, group and mode, not here.
package nodeserver
