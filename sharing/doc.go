// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package sharing is the model that every part of Kerf speaks: units, GPUs, requests, fragments,
// placements, enforcement levels and the error vocabulary.
//
// It promises to be pure: no I/O, no clock, no goroutine, no package state. All capacity arithmetic is
// checked; nothing wraps.
//
// It does not decide anything: who holds what is sharing/ledger, which GPU answers a request is
// sharing/allocator, and how a cap is put in force is sharing/backend.
package sharing
