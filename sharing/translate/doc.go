// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package translate says in Kerf's words what pods ask for that were written for other tools: NVIDIA's device plugin, HAMi,
// KAI and Run:ai, and Volcano.
//
// It promises that a pod asks for the same after it as before, or is refused with what has no counterpart; memory, which pods
// of Kerf ask for in whole GiB, is rounded up, and that is said. A pod that asks for nothing of another tool's stays as it is.
// It does not say which node takes the pod, and it is pure.
package translate
