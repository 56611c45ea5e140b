// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package machine reads machine files, which say what GPUs a simulated node has, and knows the drivers that
// can be simulated.
//
// A machine that Load or Parse returns has been checked: sizes are in range, MIG instances lie on legal places, PCI
// addresses are unique. Load and Parse reject a wrong file with all its errors. Identities are computed from the
// directory, the machine's name and the minor. So they stay over restarts and two simulated nodes share none.
//
// It keeps no state: what a GPU does is package model's.
package machine
