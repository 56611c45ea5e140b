// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command picture draws the picture of the README from what commands printed.
//
//	picture [--check] TRANSCRIPT SVG
//
// hack/picture.sh records the transcript on a cluster. With --check, picture fails if SVG does not match the
// transcript.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	check := len(args) > 0 && args[0] == "--check"
	if check {
		args = args[1:]
	}
	if len(args) != 2 {
		return errors.New("usage: picture [--check] TRANSCRIPT SVG")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return fmt.Errorf("read transcript: %w", err)
	}
	svg, err := draw(string(text))
	if err != nil {
		return fmt.Errorf("draw %s: %w", args[0], err)
	}
	if !check {
		return os.WriteFile(args[1], svg, 0o644)
	}
	old, err := os.ReadFile(args[1])
	if err != nil {
		return fmt.Errorf("read picture: %w", err)
	}
	if !bytes.Equal(old, svg) {
		return fmt.Errorf("%s does not match %s: run make generate", args[1], args[0])
	}
	return nil
}
