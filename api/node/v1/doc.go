// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodev1 is the node API in Go, generated from node.proto. It has the messages, client and server of the gRPC
// service that kerf-agent offers on its Unix socket.
//
// It promises that fields are only added; a changed meaning is a new package. It carries no logic and no
// checks: the server validates, and what a field means is said in node.proto.
package nodev1
