// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package libkerf enforces caps with a library that each program of a grant loads. The programs count their memory in a
// region that they share with the agent.
package libkerf
