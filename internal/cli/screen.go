// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"

	"golang.org/x/term"
)

// screen tells the size of the terminal that the output goes to; ok is false when it goes elsewhere.
type screen func() (width, height int, ok bool)

// screenOf asks for the size anew each time, since a window changes.
func screenOf(f *os.File) screen {
	return func() (int, int, bool) {
		fd := int(f.Fd())
		if !term.IsTerminal(fd) {
			return 0, 0, false
		}
		w, h, err := term.GetSize(fd)
		if err != nil || w <= 0 || h <= 0 {
			return 80, 24, true
		}
		return w, h, true
	}
}
