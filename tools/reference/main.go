// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command reference writes the reference of metrics, events, and of the resources, annotations, labels and taints, from
// their declarations in the code. It can also check that the reference is current:
//
//	reference [--check] ROOT
//
// It promises that it has every metric, every reason of an event and every key of Kerf in the code or the chart. It
// fails for one that has no declaration with a description. It reads source, and runs none of it.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	args := os.Args[1:]
	check := len(args) == 2 && args[0] == "--check"
	if check {
		args = args[1:]
	}
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		fmt.Fprintln(os.Stderr, "usage: reference [--check] ROOT")
		os.Exit(2)
	}
	if err := run(args[0], check); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

// run writes the pages, or says which are not what the code says.
func run(root string, check bool) error {
	s, err := read(os.DirFS(root))
	if err != nil {
		return err
	}
	pages, err := s.pages()
	if err != nil {
		return err
	}
	if err := versions(os.DirFS(root), pages); err != nil {
		return err
	}
	var errs []error
	for name, text := range pages {
		path := filepath.Join(root, "docs", "reference", name)
		if !check {
			errs = append(errs, os.WriteFile(path, text, 0o644))
			continue
		}
		is, err := os.ReadFile(path) // #nosec G304 -- below the root that was named
		if err == nil && !bytes.Equal(is, text) {
			err = fmt.Errorf("docs/reference/%s is not what the code says: run make generate", name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
