// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package walk

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	page := strings.Join([]string{
		"# A page", "```sh", "one", "two \\", "  goes on", "```", "```text", "a  b", "c...d", "```", "text between",
		"<!-- walk: same -->",
		"```yaml", "not: typed", "```", "```sh refused eventually", "three <<END", "not four", "END", "# a comment",
		"```", "", "```text", "no", "```",
	}, "\n")
	steps, err := Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	want := []Step{
		{Line: 2, Commands: "one\ntwo \\\n  goes on", Shows: []string{"a  b", "c...d"}},
		{Line: 12, Check: "same"},
		{Line: 16, Commands: "three <<END\nnot four\nEND\n# a comment", Refused: true, Eventually: true,
			Shows: []string{"no"}},
	}
	if d := cmp.Diff(want, steps); d != "" {
		t.Error(d)
	}
	if a, b := steps[0].Count(), steps[2].Count(); a != 2 || b != 1 {
		t.Errorf("%d and %d commands", a, b)
	}
	for name, page := range map[string]string{
		"no language":        "```\na\n```",
		"another language":   "```python\na\n```",
		"another manner":     "```sh later\na\n```",
		"no end":             "```sh\na",
		"nothing to see":     "```sh eventually\na\n```",
		"a text of nothing":  "```text\na\n```",
		"a text far away":    "```sh\na\n```\nwords\n```text\na\n```",
		"two texts":          "```sh\na\n```\n```text\na\n```\n```text\nb\n```",
		"a text for a check": "<!-- walk: same -->\n```text\na\n```",
	} {
		if steps, err := Parse(page); err == nil || !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("%s: %+v, %v", name, steps, err)
		}
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	s := Step{Shows: []string{"NAME STATE", "a...ready", "", "b (1.5)"}}
	for output, want := range map[string]string{
		"NAME   STATE\nx\na  is ready now\nb (1.5)": "",
		"NAME STATE\na ready":                       "b (1.5)",
		"a ready\nNAME STATE\nb (1.5)":              "a...ready",
		"NAME STATE\na is not\nb (1.5)":             "a...ready",
		"NAME STATE\na ready\nb (1x5)":              "b (1.5)",
	} {
		if got := s.Missing(output); got != want {
			t.Errorf("%q: %q is missing, want %q", output, got, want)
		}
	}
}
