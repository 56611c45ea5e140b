// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import "slices"

// Nearest returns the word that differs least from s, for "did you mean". It returns an empty string if every word
// differs in more than a third of its letters.
func Nearest(s string, among []string) string {
	const longest = 64
	if s == "" || len(s) > longest {
		return ""
	}
	best, least := "", 0
	for _, w := range among {
		d := distance(fold(s), fold(w))
		if d <= max(len(w), len(s))/3 && (best == "" || d < least) {
			best, least = w, d
		}
	}
	return best
}

// fold removes what people write differently: case and word separators.
func fold(s string) []byte {
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		switch c := s[i]; {
		case c == '-' || c == '_' || c == ' ':
		case 'A' <= c && c <= 'Z':
			out = append(out, c+'a'-'A')
		default:
			out = append(out, c)
		}
	}
	return out
}

// distance counts the letters to insert, delete, change or swap to turn a into b.
func distance(a, b []byte) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range b {
			next[j+1] = min(row[j+1]+1, next[j]+1)
			switch {
			case a[i] == b[j]:
				next[j+1] = min(next[j+1], row[j])
			case i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j]:
				next[j+1] = min(next[j+1], before[j-1]+1)
				fallthrough
			default:
				next[j+1] = min(next[j+1], row[j]+1)
			}
		}
		before, row = row, slices.Clone(next)
	}
	return row[len(b)]
}
