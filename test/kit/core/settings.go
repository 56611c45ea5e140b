// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"maps"
	"slices"
)

// Settings are what can be set on the GPUs of a machine: "UUID setting" to the value.
type Settings map[string]string

// Compare returns one sentence for each difference, sorted. A setting that could be read only once is a difference.
func Compare(before, after Settings) []string {
	var out []string
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		was, before := before[k]
		is, after := after[k]
		switch {
		case !after:
			out = append(out, fmt.Sprintf("%s was %s before and cannot be read any more", k, was))
		case !before:
			out = append(out, fmt.Sprintf("%s is %s and could not be read before", k, is))
		case was != is:
			out = append(out, fmt.Sprintf("%s was %s before and is %s now", k, was, is))
		}
	}
	return out
}
