// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

// Pieces are those in which a node gives its GPUs.
type Pieces uint8

// In parts and whole, in parts alone, whole alone.
const (
	AllPieces Pieces = iota
	PartsAlone
	WholeAlone
)

// String completes "GPUs are given".
func (p Pieces) String() string {
	switch p {
	case PartsAlone:
		return "in parts alone"
	case WholeAlone:
		return "whole alone"
	case AllPieces:
	}
	return "in parts and whole"
}
