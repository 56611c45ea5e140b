// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/kerf-gpu/kerf/sharing"
)

// unknown stands where a value is not known or there is none.
const unknown = "-"

// clean makes s safe for a terminal and keeps it in one line: what does not print becomes a question mark.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// or is s, or the mark for nothing.
func or(s string) string {
	if s == "" {
		return unknown
	}
	return clean(s)
}

func size(b uint64) string { return sharing.Bytes(b).String() }

// times is an amount, and how often it is given where that is more than once.
func times(amount string, percent int) string {
	if f := sharing.Factor(max(0, min(percent, 1000))); f.More() {
		return amount + " x" + f.String()
	}
	return amount
}

// ofPercent is how much compute is granted, and of how much where that is more than there is.
func ofPercent(granted, percent int) string {
	text := strconv.Itoa(granted) + "%"
	if percent > 100 {
		text += " of " + strconv.Itoa(percent) + "%"
	}
	return text
}

// withLent is what is guaranteed, and after a plus what is lent beyond it.
func withLent(guaranteed, lent uint64) string {
	if lent == 0 {
		return size(guaranteed)
	}
	return size(guaranteed) + "+" + size(lent)
}

func sizeOr(b *uint64) string {
	if b == nil {
		return unknown
	}
	return size(*b)
}

// percent renders a share; 0 is a fair share, not none.
func percent(p uint32) string {
	if p == 0 {
		return "fair"
	}
	return sharing.Percent(p).String()
}

func utilization(u *int32) string {
	if u == nil {
		return unknown
	}
	return strconv.Itoa(int(*u)) + "%"
}

// usable is what of a GPU can be granted at all.
func (g GPU) usable() uint64 {
	return uint64(sharing.Bytes(g.MemoryBytes).SubFloor(sharing.Bytes(g.ReservedBytes)))
}

// plural is "1 pid", "2 pids".
func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}
