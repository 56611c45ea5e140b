// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package mig is the geometry of MIG: which instances a GPU can be cut into, where each may begin, what still
// fits beside those that there are, and what the rest is worth for the pods that are expected.
//
// A Table is built from what the driver reports of one GPU. Nothing in this package knows a product: names,
// ids, sizes and the length of the axis vary with GPU and driver. A Table never changes and may be shared.
//
// Room is counted as the driver counts it: an instance needs its stretch of the axis for itself, compute slices
// and media engines of which the GPU has only so many, and no more instances of its profile than the driver
// allows. The GPU has as much of each as its largest profile takes. Copy engines are not counted, because
// instances may share them.
//
// The package does not talk to a driver and decides nothing: package plan does that.
package mig
