// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxLine is the longest line on stderr in bytes; runtimes and events cut longer ones themselves.
const maxLine = 2 << 10

// OneLine makes s safe to show: control characters, line ends and what is no UTF-8 are written as escapes, so
// that nothing in an error begins a line of its own.
func OneLine(s string) string {
	var b strings.Builder
	for len(s) > 0 && b.Len() < maxLine {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 || !strconv.IsPrint(r) {
			b.WriteString(strings.Trim(strconv.QuoteToASCII(s[:n]), `"`))
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	if s != "" {
		b.WriteString("...")
	}
	return b.String()
}

// shorten cuts what came from outside before it is quoted into an error.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
