// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package client

// MaxWord is the longest Ask and Grant in bytes. The agent checks what they say.
const MaxWord = 128

// IsWord reports whether s can be an Ask or a Grant: 1 to MaxWord of a-z A-Z 0-9 . : _ -.
func IsWord(s string) bool {
	if s == "" || len(s) > MaxWord {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && c != '.' && c != ':' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
