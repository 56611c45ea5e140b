// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire is the Go side of the simulated driver's packets: operation numbers, statuses, and the
// encoding of requests and responses that lib/protocol.h declares for the C libraries.
//
// It promises that whatever Decode accepts, Encode gives back byte for byte, and that no input makes it panic. A packet
// of another build (ErrVersion) differs from one that is broken (ErrPacket).
//
// It does no I/O and gives the numbers no meaning: that is package model's.
package wire
