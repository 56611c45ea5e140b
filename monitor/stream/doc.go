// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package stream is the telemetry API's server side: it sends the collector's snapshots to whoever watches.
//
// It promises that a reader gets each sample once and in order, is told how many it missed because it was too slow, and
// slows neither the collector nor another reader. What a reader does not want is left out before it is sent.
//
// It does not say who may read: that is the socket's mode.
package stream
