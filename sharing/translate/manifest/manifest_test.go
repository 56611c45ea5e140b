// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"bytes"
	"encoding/json"
	"errors"
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

func same(s string) string { return s }

func TestTranslate(t *testing.T) {
	const in = `# the team's job
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team}
spec:
  template:
    metadata:
      annotations:
        nvidia.com/use-gputype: A100
    spec:
      containers:
      - name: main # its command stays
        image: i
        resources:
          requests: {nvidia.com/gpumem: "3000"}
          limits: {nvidia.com/gpumem: 3000, cpu: "2"}
---
apiVersion: v1
kind: Pod
metadata: {name: other, namespace: else}
spec:
  containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]
---
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: ray}
spec:
  workerGroupSpecs:
  - template:
      metadata: {}
      spec:
        containers: [{name: w, resources: {limits: {nvidia.com/gpu: 2}}}]
`
	const want = `# the team's job
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team}
spec:
  template:
    metadata:
      annotations:
        kerf.dev/gpu-model: "*A100*"
    spec:
      containers:
      - name: main # its command stays
        image: i
        resources:
          limits: {kerf.dev/gpu-memory-gib: "3", cpu: "2"}
---
apiVersion: v1
kind: Pod
metadata: {name: other, namespace: else}
spec:
  containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]
---
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: ray}
spec:
  workerGroupSpecs:
  - template:
      metadata: {}
      spec:
        containers: [{name: w, resources: {limits: {kerf.dev/gpu: "2"}}}]
`
	r, err := manifest.Translate([]byte(in), manifest.Options{Namespace: "team", Decimal: same})
	if d := cmp.Diff(want, string(r.Text)); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	if r.Pods != 2 || r.Changed != 2 || len(r.Differences) != 1 ||
		!strings.HasPrefix(r.Differences[0], "Deployment team/web: container main: 2.93GiB") &&
			!strings.Contains(r.Differences[0], "rounded up to 3GiB") {
		t.Errorf("%d pods, %d changed, said %q", r.Pods, r.Changed, r.Differences)
	}
	again, err := manifest.Translate(r.Text, manifest.Options{Namespace: "team", Decimal: same})
	if err != nil || again.Changed != 0 || string(again.Text) != want {
		t.Errorf("a second time: %+v, %v", again, err)
	}
}

func TestRefusals(t *testing.T) {
	const pod = "kind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c, resources: {limits: {%s}}}]}\n"
	two := strings.NewReplacer("%s}\nspec", "a}\nspec", "{%s}}}]", "{nvidia.com/gpucores: 30}}}]").Replace(pod) +
		"---\n" +
		strings.NewReplacer("%s}\nspec", "b}\nspec", "{%s}}}]", "{nvidia.com/gpu.shared: 1}}}]").Replace(pod)
	r, err := manifest.Translate([]byte(two), manifest.Options{Decimal: same})
	if !errors.Is(err, sharing.ErrInvalid) || !strings.Contains(err.Error(), "Pod a: ") ||
		!strings.Contains(err.Error(), "Pod b: ") || r.Text != nil {
		t.Errorf("%+v, %v", r, err)
	}
	const both = "kind: Pod\nmetadata: {name: a, annotations: {gpu-fraction: '0.5', gpu-memory: '1', " +
		"gpu-fraction-limit: '1'}}\nspec: {containers: [{name: c}]}\n"
	_, err = manifest.Translate([]byte(both), manifest.Options{Decimal: same})
	if err == nil || strings.Count(err.Error()+"\n", "\n") != 2 || strings.Count(err.Error(), "Pod a: ") != 2 {
		t.Errorf("two errors of one pod: %v", err)
	}
	if _, err := manifest.Translate([]byte("a: [b"), manifest.Options{Decimal: same}); !errors.Is(err,
		sharing.ErrInvalid) {
		t.Errorf("no YAML: %v", err)
	}
	if _, err := manifest.Translate(make([]byte, manifest.MaxSize+1), manifest.Options{Decimal: same}); !errors.Is(err,
		sharing.ErrInvalid) {
		t.Errorf("too large: %v", err)
	}
}

// Each of these has no place for an edit, or needs two edits of one place.
func TestNoEdit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ in, want string }{
		"one anchor, two changes": {"x: &r {limits: {cpu: 1}}\na: {metadata: {annotations: {gpu-fraction: '0.5'}}, " +
			"spec: {containers: [{name: c, resources: *r}]}}\nb: {metadata: {}, spec: {containers: [{name: c, " +
			"resources: *r}]}}\n", "write its content out"},
		"no place for annotations": {"kind: LLMInferenceService\nmetadata: {name: l}\nspec: {template: {containers: " +
			"[{name: m, resources: {limits: {nvidia.com/gpu: 2, nvidia.com/gpumem: 1}}}]}}\n",
			"has no place for them"},
		"a complex key": {"spec:\n  containers:\n  - resources:\n      limits:\n        ? nvidia.com/gpu\n" +
			"        : 1\n        cpu: 1\n", "edit the manifests"},
		"requests and limits": {"kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, resources: {requests: " +
			"{nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 0}}}]}\n", "differs from its request 1"},
		"too deep": {strings.Repeat("{a: ", 300) + "{resources: {limits: {nvidia.com/gpu: 1}}}" +
			strings.Repeat("}", 300), "has more than 256 levels"},
		"an anchor that becomes empty": {"spec:\n  containers:\n  - resources:\n      limits: &l\n        " +
			"nvidia.com/gpu: 0\n", "edit the manifests"},
	} {
		r, err := manifest.Translate([]byte(tt.in), manifest.Options{Decimal: same})
		if !errors.Is(err, sharing.ErrInvalid) || !strings.Contains(err.Error(), tt.want) || r.Text != nil {
			t.Errorf("%s: %v\n%s", name, err, r.Text)
		}
	}
}

// TestForms: one line changes, whatever the form of the file is.
func TestForms(t *testing.T) {
	t.Parallel()
	const head = "spec:\n  containers:\n  - resources:\n      limits:\n        cpu: 1\n        "
	for name, tt := range map[string][2]string{
		"CRLF": {strings.ReplaceAll(head+"nvidia.com/gpu: 1\n        nvidia.com/gpumem: 1024\n", "\n", "\r\n"),
			strings.ReplaceAll(head+"kerf.dev/gpu-memory-gib: \"1\"\n", "\n", "\r\n")},
		"a byte order mark": {"\ufeff" + head + "nvidia.com/gpu: 1\n", "\ufeff" + head + "kerf.dev/gpu: \"1\"\n"},
		"no last newline":   {head + "nvidia.com/gpu: 1", head + "kerf.dev/gpu: \"1\""},
		"deep": {strings.Repeat("{a: ", 100) + "{resources: {limits: {nvidia.com/gpu: 1}}}" + strings.Repeat("}", 100),
			strings.Repeat("{a: ", 100) + "{resources: {limits: {kerf.dev/gpu: \"1\"}}}" + strings.Repeat("}", 100)},
		"quoted":            {head + "'nvidia.com/gpu': \"1\" # one\n", head + "kerf.dev/gpu: \"1\" # one\n"},
		"an anchor and tag": {head + "nvidia.com/gpu: &one !!int 1\n", head + "kerf.dev/gpu: \"1\"\n"},
		"wide characters": {"# é\nspec: {containers: [{name: 'é€', resources: {limits: {nvidia.com/gpu: 1}}}]}\n",
			"# é\nspec: {containers: [{name: 'é€', resources: {limits: {kerf.dev/gpu: \"1\"}}}]}\n"},
		"a folded annotation": {"metadata:\n  annotations:\n    nvidia.com/use-gputype: >-\n      A100\n\n    a: b\n" +
			head + "nvidia.com/gpu: 1\n",
			"metadata:\n  annotations:\n    kerf.dev/gpu-model: \"*A100*\"\n\n    a: b\n" + head +
				"kerf.dev/gpu: \"1\"\n"},
		"null instead of mappings": {"metadata:\nspec:\n  containers:\n  - name: c\n    resources:\n---\n" +
			"metadata:\n  annotations: {gpu-fraction: '0.5'}\nspec:\n  containers:\n  - resources:\n" +
			"    name: c # last\n",
			"metadata:\nspec:\n  containers:\n  - name: c\n    resources:\n---\nspec:\n  containers:\n  - resources: " +
				"{limits: {kerf.dev/gpu-percent: \"50\"}}\n    name: c # last\n"},
	} {
		r, err := manifest.Translate([]byte(tt[0]), manifest.Options{Decimal: same})
		if d := cmp.Diff(tt[1], string(r.Text)); d != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, d)
		}
	}
}

// TestScheduler: without a name to replace it, the message names the other scheduler.
func TestScheduler(t *testing.T) {
	t.Parallel()
	const in = "kind: Pod\nmetadata: {name: p}\nspec: {schedulerName: volcano, containers: [{name: c, resources: " +
		"{limits: {nvidia.com/gpu: 1}}}]}\n"
	r, err := manifest.Translate([]byte(in), manifest.Options{Decimal: same})
	if err != nil || !strings.Contains(string(r.Text), "schedulerName: volcano") ||
		!strings.Contains(strings.Join(r.Differences, "\n"), "schedulerName volcano stays") {
		t.Errorf("%v: %q\n%s", err, r.Differences, r.Text)
	}
}

// gpuWords matches each word that a translation can change.
var gpuWords = regexp.MustCompile(`(?i)gpu|mig-|volcano|scheduler|\\`)

// FuzzTranslate: nothing panics. JSON stays JSON, a second translation changes nothing, and neither does the first
// without a GPU word.
func FuzzTranslate(f *testing.F) {
	f.Add([]byte("kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: " +
		"1}}}]}\n"))
	f.Add([]byte("a: &x {spec: {containers: [{name: c, resources: &r {limits: {nvidia.com/gpumem: 1}}}]}, metadata: " +
		"{}}\nb: *x\n"))
	f.Add([]byte("a: &a {<<: *a, spec: {containers: [*a]}}\n"))
	corpus, err := filepath.Glob("testdata/*.in.*")
	if err != nil || len(corpus) == 0 {
		f.Fatal(corpus, err)
	}
	for _, name := range corpus {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := manifest.Options{Options: translate.Options{Replicas: 2}, Scheduler: "kerf-scheduler", Decimal: same}
		r, err := manifest.Translate(data, o)
		if err != nil {
			return
		}
		if json.Valid(data) && !json.Valid(r.Text) {
			t.Fatalf("%q is JSON, and %q is not", data, r.Text)
		}
		if !gpuWords.Match(data) && !bytes.Equal(r.Text, data) {
			t.Fatalf("%q became %q", data, r.Text)
		}
		if again, err := manifest.Translate(r.Text, o); err == nil && again.Changed != 0 {
			t.Fatalf("%q, then %q", r.Text, again.Text)
		}
	})
}
