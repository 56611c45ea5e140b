// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command kerf-lab runs placement experiments. It fills a cluster with the pods of a published trace, of a YAML or of a
// running cluster. Then it compares how much of it each policy uses. It is not part of the product.
//
// Exit status: 0, 1 when it could not do its work, 2 when it was used wrongly.
package main

import (
	"os"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/lab/experiment"
)

func main() {
	code, _ := command.Main(os.Args, command.Process{
		In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr, Getenv: os.Getenv, Environ: os.Environ,
	}, experiment.Command)
	os.Exit(code)
}
