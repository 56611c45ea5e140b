// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command treecheck reads the text files of a source tree and reports what no compiler finds. That is a missing license
// header, a long file, a wide line, a broken link, or a path that exists on one person's machine only.
//
//	treecheck DIR
//
// It prints one line for each finding and exits 1 when there is any. It changes nothing.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: treecheck DIR")
		os.Exit(2)
	}
	findings, err := check(os.DirFS(os.Args[1]))
	if err != nil {
		fmt.Fprintln(os.Stderr, "treecheck:", err)
		os.Exit(2)
	}
	for _, finding := range findings {
		fmt.Fprintln(os.Stderr, finding)
	}
	if len(findings) > 0 {
		os.Exit(1)
	}
}
