// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// results is what hack/e2e-versions.sh writes: a line "VERSION passed|failed DATE" for each version of Kubernetes.
const results = "test/e2e/versions.txt"

// versions has the page of tested versions, if the tree has results.
func versions(root fs.FS, pages map[string][]byte) error {
	text, err := fs.ReadFile(root, results)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	page, err := versionsPage(string(text))
	if err != nil {
		return fmt.Errorf("read %s: %w", results, err)
	}
	pages["versions.md"] = page
	return nil
}

func versionsPage(text string) ([]byte, error) {
	var b strings.Builder
	b.WriteString(made + "# Tested versions of Kubernetes\n\n`make e2e-versions` runs each version on a simulated " +
		"GPU node: a capped pod, a greedy one,\nan agent that ends, MIG on demand, gangs, preemption, " +
		"admission, and the chart with its removal.\n\n| Kubernetes | result | date |\n|---|---|---|\n")
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 || f[1] != "passed" && f[1] != "failed" {
			return nil, fmt.Errorf("line %q: want a version, passed or failed, and a date",
				strings.TrimSpace(line))
		}
		if _, err := time.Parse(time.DateOnly, f[2]); err != nil {
			return nil, fmt.Errorf("line %q: %w", strings.TrimSpace(line), err)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", f[0], f[1], f[2])
	}
	return []byte(b.String()), nil
}
