// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"fmt"
	"slices"
	"strings"
)

// Diff returns the lines that two texts do not share, each with its number in its text: "-" in the first, "+" in the
// second.
func Diff(first, second string) string {
	a, b := strings.Split(first, "\n"), strings.Split(second, "\n")
	// common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i, line := range slices.Backward(a) {
		for j, other := range slices.Backward(b) {
			if line == other {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out strings.Builder
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			fmt.Fprintf(&out, "-%4d %s\n", i+1, a[i])
			i++
		default:
			fmt.Fprintf(&out, "+%4d %s\n", j+1, b[j])
			j++
		}
	}
	return out.String()
}
