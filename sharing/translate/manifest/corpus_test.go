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

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/translate"
	"github.com/kerf-gpu/kerf/sharing/translate/manifest"
)

var update = flag.Bool("update", false, "write the expected files of testdata")

// TestCorpus: each manifest of testdata becomes the expected text, with the expected messages. A second translation
// changes nothing.
func TestCorpus(t *testing.T) {
	corpus(t, "testdata", manifest.Options{Decimal: same, Scheduler: "kerf-scheduler"})
}

// TestClaimsCorpus is the same for translations to ResourceClaims, also of pods with Kerf's limits.
func TestClaimsCorpus(t *testing.T) {
	corpus(t, "testdata/claims", manifest.Options{Decimal: same, Options: translate.Options{Replicas: 4},
		ByClaim: &translate.ClaimOptions{Memory: 80 * sharing.GiB}})
}

// corpus translates each manifest of a folder, twice.
func corpus(t *testing.T, folder string, o manifest.Options) {
	t.Helper()
	inputs, err := filepath.Glob(folder + "/*.in.*")
	if err != nil || len(inputs) < 6 {
		t.Fatalf("%q, %v", inputs, err)
	}
	for _, in := range inputs {
		data, err := os.ReadFile(in)
		if err != nil {
			t.Fatal(err)
		}
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
