// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package control is the language in which the gpusim command and its daemon speak: one JSON object per line
// over the socket control.sock in the simulated node's directory, a request and then its answer.
//
// It promises that a request which is refused says which key or field is wrong and what to write instead, and
// that errors keep their kind (sharing's sentinels) over the socket.
//
// The socket is for the owner of the directory; it is no part of what a tenant sees.
package control
