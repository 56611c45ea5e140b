// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor tells what a machine can do for Kerf, what it lacks, and how each lack is mended.
//
// Gather looks at the machine and Examine, which is pure, judges what was seen. Gather promises to change
// nothing, to run no program and to work without an agent, without a driver and without root; what could
// not be looked at is reported as unknown and never as missing.
//
// Its verdict is a forecast: what a grant's level is, the agent says with the grant. Where an agent answers,
// its word on the levels counts and not the forecast.
package doctor
