// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

// results is what hack/e2e-versions.sh writes, a line for each pair of versions:
//
//	KUBERNETES RUNTIME passed|failed DATE COMMIT PASSED SKIPPED
//
// PASSED is a number of tests. SKIPPED has their names with commas, or is "-".
const results = "test/e2e/versions.txt"

// fieldsOfResult is how many words a line of results has.
const fieldsOfResult = 7

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
	b.WriteString(made + "# Tested versions\n\nEach row is one run of `make e2e-versions` on a simulated GPU node. " +
		"The run tests:\n\n- a capped pod and a pod that requests too much\n- a killed agent\n- MIG on demand\n" +
		"- kerf-scheduler with preemption\n- gangs and gang preemption\n- admission policies\n" +
		"- installation and removal of the chart\n" +
		"- shares and MIG instances by ResourceClaim, from Kubernetes 1.36 on\n\n" +
		"Kerf skips a test if the API server lacks a kind. Gangs need Kubernetes 1.37.\n\n" +
		"| Kubernetes | container runtime | result | tests passed | tests skipped | date | commit |\n" +
		"|---|---|---|---|---|---|---|\n")
	for line := range strings.Lines(text) {
		row, err := versionsRow(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", strings.TrimSpace(line), err)
		}
		b.WriteString(row)
	}
	return []byte(b.String()), nil
}

// versionsRow is the row of the page for a line of results.
func versionsRow(f []string) (string, error) {
	if len(f) != fieldsOfResult {
		return "", fmt.Errorf("%d words, want %d", len(f), fieldsOfResult)
	}
	if f[2] != "passed" && f[2] != "failed" {
		return "", fmt.Errorf("result %q, want passed or failed", f[2])
	}
	if _, err := time.Parse(time.DateOnly, f[3]); err != nil {
		return "", err
	}
	if _, err := strconv.ParseUint(f[4], 16, 64); err != nil {
		return "", fmt.Errorf("commit: %w", err)
	}
	if _, err := strconv.ParseUint(f[5], 10, 16); err != nil {
		return "", fmt.Errorf("number of tests: %w", err)
	}
	skipped := "none"
	if f[6] != "-" {
		skipped = "`" + strings.ReplaceAll(f[6], ",", "`, `") + "`"
	}
	runtime, version, _ := strings.Cut(f[1], "-")
	if runtime == "crio" {
		runtime = "CRI-O"
	}
	return fmt.Sprintf("| %s | %s %s | %s | %s | %s | %s | %#q |\n", f[0], runtime, version, f[2], f[5], skipped,
		f[3], f[4]), nil
}
