// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package telemetryv1 is the telemetry API's wire format, generated from telemetry.proto by "make generate". The
// protobuf file is the contract and documents every field.
package telemetryv1
