// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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

// gpuLine matches each line with a word that can request a GPU. A line with the comment "no request" does not.
var gpuLine = regexp.MustCompile(`(?i)nvidia\\?\.com[/~]|(volcano|koordinator)\.sh/|(aliyun|nvshare|tencent)\.com/|` +
	`/v?q?gpu|nvidia_visible_devices|gpu-(fraction|memory)|\bgpu\w*: |(request|limit)gpu|` +
	`deviceclassname|org\.instaslice`)

// noRequest matches lines of the corpus that need no name.
var noRequest = regexp.MustCompile(`# (no request|translated)|kerf\.dev/|apiVersion|num-gpus|` +
	`key: nvidia\.com/gpu, operator|gpu\.present|value: void|nic\.example|requestGPU: 0`)

// TestNothingSilent checks that the messages name each line of a result that has the GPU word of another tool.
func TestNothingSilent(t *testing.T) {
	t.Parallel()
	results, err := filepath.Glob("testdata/*.want.yaml")
	if err != nil || len(results) < 10 {
		t.Fatalf("%q, %v", results, err)
	}
	for _, name := range results {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := manifest.Translate(data, manifest.Options{Decimal: same})
		if err != nil {
			t.Fatal(err)
		}
		named := strings.Join(r.Left, "\n")
		at := func(line int) bool { return strings.Contains(named, fmt.Sprintf("line %d: ", line)) }
		block := 0 // the line where the text of several lines begins, which has its name
		for i, line := range strings.Split(string(data), "\n") {
			if strings.HasSuffix(line, "|") || strings.HasSuffix(line, "|-") {
				block = i + 1
			}
			if gpuLine.MatchString(line) && !noRequest.MatchString(line) && !at(i+1) && (i-block > 3 || !at(block)) {
				t.Errorf("%s: no message names line %d: %s", name, i+1, line)
			}
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
