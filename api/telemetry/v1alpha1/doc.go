// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package telemetryapi is the telemetry API's wire format, generated from telemetry.proto by "make generate". The
// protobuf file documents every field. The API may change until release 1.0.
package telemetryapi
