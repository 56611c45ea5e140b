// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing/translate/manifest"
)

var update = flag.Bool("update", false, "write the expected files of testdata")

// TestCorpus: each manifest of testdata becomes the expected text, with the expected messages. A second translation
// changes nothing.
func TestCorpus(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.in.*")
	if err != nil || len(inputs) < 8 {
		t.Fatalf("%q, %v", inputs, err)
	}
	for _, in := range inputs {
		data, err := os.ReadFile(in)
		if err != nil {
			t.Fatal(err)
		}
		o := manifest.Options{Decimal: same, Scheduler: "kerf-scheduler"}
		r, err := manifest.Translate(data, o)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		messages := strings.Join(append(prefixed("said: ", r.Differences), prefixed("left: ", r.Left)...), "")
		expect(t, strings.Replace(in, ".in.", ".want.", 1), string(r.Text))
		name, _, _ := strings.Cut(in, ".in.")
		expect(t, name+".messages.txt", messages)
		if strings.HasSuffix(in, ".json") && !json.Valid(r.Text) {
			t.Errorf("%s: the result is no JSON", in)
		}
		again, err := manifest.Translate(r.Text, o)
		if err != nil || !bytes.Equal(again.Text, r.Text) || again.Changed != 0 {
			t.Errorf("%s, a second time: %d changed, %v\n%s", in, again.Changed, err,
				cmp.Diff(string(r.Text), string(again.Text)))
		}
	}
}

func prefixed(prefix string, lines []string) (out []string) {
	for _, line := range lines {
		out = append(out, prefix+line+"\n")
	}
	return out
}

func expect(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s:\n%s", name, d)
	}
}
