// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeapi is the node API in Go, generated from node.proto: messages, client and server. kerf-agent offers this
// gRPC service on its Unix socket. The API may change until release 1.0.
//
// It carries no logic and no checks. The server validates, and node.proto documents each field.
package nodeapi
