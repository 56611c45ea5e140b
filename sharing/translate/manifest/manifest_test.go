// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"errors"
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
            limits: {cpu: "2", kerf.dev/gpu-memory-gib: "3"}
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
	if r.Pods != 2 || r.Changed != 2 || len(r.Said) != 1 ||
		!strings.HasPrefix(r.Said[0], "Deployment team/web: container main: 2.93GiB") &&
			!strings.Contains(r.Said[0], "rounded up to 3GiB") {
		t.Errorf("%d pods, %d changed, said %q", r.Pods, r.Changed, r.Said)
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
	if _, err := manifest.Translate([]byte("a: [b"), manifest.Options{Decimal: same}); !errors.Is(err,
		sharing.ErrInvalid) {
		t.Errorf("no YAML: %v", err)
	}
	if _, err := manifest.Translate(make([]byte, manifest.MaxSize+1), manifest.Options{Decimal: same}); !errors.Is(err,
		sharing.ErrInvalid) {
		t.Errorf("too large: %v", err)
	}
}

// FuzzTranslate: nothing panics, and what was translated is not translated again.
func FuzzTranslate(f *testing.F) {
	f.Add([]byte("kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: " +
		"1}}}]}\n"))
	f.Add([]byte("a: &x {spec: {containers: [{name: c, resources: &r {limits: {nvidia.com/gpumem: 1}}}]}, metadata: " +
		"{}}\nb: *x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		o := manifest.Options{Options: translate.Options{Replicas: 2}, Decimal: same}
		r, err := manifest.Translate(text, o)
		if err != nil || r.Changed == 0 {
			return
		}
		if again, err := manifest.Translate(r.Text, o); err == nil && again.Changed != 0 {
			t.Fatalf("%q, then %q", r.Text, again.Text)
		}
	})
}
