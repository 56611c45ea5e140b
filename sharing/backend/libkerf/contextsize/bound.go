// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package contextsize decides what one CUDA context is taken to need on each kind of GPU.
//
// It knows an upper bound for each model, decides on which GPU and when the size is measured, and judges what a
// measurement finds. Programs of tenants have no part in it. It is pure: no I/O, no clock, no goroutine.
package contextsize

import (
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Kind is a kind of GPU: contexts of one model have one size with one version of the driver.
type Kind struct{ Model, Driver string }

// String names the kind for people.
func (k Kind) String() string { return k.Model + ", driver " + k.Driver }

// The bounds. Public measurements of contexts are between 300 and 700 MiB. A context needs memory for each of the GPU's
// multiprocessors, and an H200 that loads all code at once needs more than 1 GiB.
const (
	usualBound = sharing.GiB
	largeBound = sharing.GiB + sharing.GiB/2
)

// usualModels are words in the names of models whose contexts take no more than usualBound. They have no more
// multiprocessors than an A100, or are older. Every other model counts as a large one.
func usualModels() []string {
	return []string{
		"P4", "P40", "P100", "V100", "V100S", "T4", "T4G", "TITAN", "Quadro",
		"A2", "A10", "A10G", "A10M", "A16", "A30", "A30X", "A40", "A100", "A100X", "A800",
		"A2000", "A4000", "A4500", "A5000", "A5500", "A6000", "L2", "L4", "L20",
	}
}

// Bound is the most that one context takes on a GPU of the model, as NVML names it.
func Bound(model string) sharing.Bytes {
	words := strings.FieldsFunc(model, func(r rune) bool { return r == ' ' || r == '-' || r == '/' })
	for _, usual := range usualModels() {
		for _, word := range words {
			if strings.EqualFold(word, usual) {
				return usualBound
			}
		}
	}
	return largeBound
}
