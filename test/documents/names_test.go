// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package documents_test

import (
	"testing"

	"github.com/kerf-gpu/kerf/test/documents"
)

func TestMisnamed(t *testing.T) {
	tests := map[string][]string{"a/b": {"TestOne"}, "c": {"TestOne", "TestTwo", "FuzzOne"}}
	for text, want := range map[string]struct{ wrong, n int }{
		"`a/b.TestOne`, `c.TestTwo`, `c.FuzzOne`": {0, 3},
		"`a/b.TestTwo`":              {1, 1},
		"`TestTwo`":                  {1, 1},
		"`d.TestOne` and TestOne":    {2, 2},
		"`c.TestNever`":              {1, 1},
		"`a/b.FuzzOne` `c.FuzzTwo`":  {2, 2},
		"`c.BenchmarkNone` and text": {1, 1},
	} {
		if wrong, n := documents.Misnamed(text, tests); len(wrong) != want.wrong || n != want.n {
			t.Errorf("%s: %d names, wrong %q, want %+v", text, n, wrong, want)
		}
	}
}

func TestTestsAreFound(t *testing.T) {
	tests, err := documents.Tests("../..")
	if err != nil {
		t.Fatal(err)
	}
	const text = "test/documents.TestTestsAreFound hooks/oci/client.FuzzParseState"
	if wrong, n := documents.Misnamed(text, tests); n != 2 || wrong != nil {
		t.Errorf("%d names, wrong %q", n, wrong)
	}
}
