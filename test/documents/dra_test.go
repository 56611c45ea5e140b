// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package documents_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/test/documents"
)

var (
	draRow  = regexp.MustCompile(`(?m)^\| ([^|]+\.) \| ([^|]+) \|$`)
	draTest = regexp.MustCompile("`([a-z0-9/]+\\.Test[A-Za-z0-9]+)`")
)

// TestDRAScenarios: each row of docs/reference/dra-scenarios.md names tests that exist, or gives one of four reasons.
func TestDRAScenarios(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/dra-scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := documents.Tests("../..")
	if err != nil {
		t.Fatal(err)
	}
	rows := draRow.FindAllStringSubmatch(string(text), -1)
	if n := strings.Count(string(text), "\n| "); len(rows) != n-3 || n < 120 {
		t.Errorf("%d rows can be read, of %d lines", len(rows), n)
	}
	for _, row := range rows {
		reason, _, _ := strings.Cut(row[2], ":")
		named := draTest.FindAllStringSubmatch(row[2], -1)
		if len(named) == 0 && !slices.Contains([]string{"library", "Kubernetes", "not offered", "open"}, reason) {
			t.Errorf("%s has no test and no reason: %s", row[1], row[2])
		}
		for _, test := range named {
			misnamed, n := documents.Misnamed(test[1], tests)
			if len(misnamed) > 0 || n != 1 {
				t.Errorf("%s: %q names %d tests", row[1], misnamed, n)
			}
		}
	}
}
