// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// recipe is a file of deploy/recipes, changed by pairs of old and new text, each of which must occur. It returns where
// the changed file is, and its text.
func (e *testCase) recipe(name string, changes ...string) (file, text string) {
	e.Helper()
	data, err := os.ReadFile(filepath.Join(e.node.env["REPO"], "deploy/recipes", name))
	if err != nil {
		e.Fatal(err)
	}
	text = string(data)
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			e.Fatalf("%s lacks %q", name, changes[i])
		}
		text = strings.ReplaceAll(text, changes[i], changes[i+1])
	}
	file = filepath.Join(e.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		e.Fatal(err)
	}
	return file, text
}

// adopt makes a pod that a controller made one of the test's.
func (e *testCase) adopt(o *corev1.Pod) *pod {
	p := &pod{e: e, name: o.Name, namespace: o.Namespace}
	e.pods = append(e.pods, p)
	return p
}

// podsWith waits for exactly n pods with a label, and returns them.
func (e *testCase) podsWith(label string, n int) []*pod {
	e.Helper()
	var out []*pod
	eventually(e, fmt.Sprintf("%d pods with %s", n, label), func() error {
		list, err := e.client.CoreV1().Pods(e.namespace).List(background(), metav1.ListOptions{LabelSelector: label})
		if err != nil || len(list.Items) != n {
			return fmt.Errorf("%d pods: %w", len(list.Items), err)
		}
		out = nil
		for i := range list.Items {
			out = append(out, e.adopt(&list.Items[i]))
		}
		return nil
	})
	return out
}

// The page of JobSet, with JobSet: its pods wait together while one does not fit, and run each with its share.
func TestNeighborJobSet(t *testing.T) {
	if !*runNeighbors {
		t.Skip("JobSet is not built for the suite: run it with make e2e-neighbors")
	}
	e := withGangs(t)
	const page = "docs/use/jobset.md"
	e.withOperator("jobset", "jobset-system", "jobset-controller-manager", "jobsets.jobset.x-k8s.io")
	file, _ := e.recipe("jobset.yaml", "image: registry.example/train:v1", "image: "+loadImage+
		"\n              command: [gpuload, --json, --alloc, 4GiB, --hold, 20s]", "kerf.dev/gpu-memory-gib: \"10\"",
		"kerf.dev/gpu-memory-gib: \"60\"")
	typed := func(n int) string {
		return e.typePage(strings.ReplaceAll(e.pageBlock(page, n), "deploy/recipes/jobset.yaml", file))
	}
	var first []*pod
	for i := range 4 { // 4 of 8 GPUs are left for 5 pods
		first = append(first, e.create(byKerf(one(fmt.Sprint("first", i), gibs(60), hold))))
	}
	for _, p := range first {
		p.running()
	}
	typed(0)
	const label = "jobset.sigs.k8s.io/jobset-name=train"
	members := e.podsWith(label, 5)
	members[0].event("FailedScheduling", "5 pods must fit at once, and 4 of them fit")
	if out := typed(1); strings.Count(out, "Pending") != 5 {
		t.Errorf("the page's command prints:\n%s", out)
	}
	first[0].delete()
	for _, p := range members {
		p.running()
		e.wantHeld(p, "main", share(60*gib, 0))
	}
	typed(2)
}

// The page of KubeRay, with its operator: each worker has its share, and releases it. Ray is not there: the containers
// run another program.
func TestNeighborKubeRay(t *testing.T) {
	if !*runNeighbors {
		t.Skip("KubeRay is not built for the suite: run it with make e2e-neighbors")
	}
	e := withScheduler(t)
	const page = "docs/use/ray.md"
	e.withOperator("kuberay", "default", "kuberay-operator", "rayclusters.ray.io")
	if r := e.kubectl("", "set", "env", "deployment/kuberay-operator", "-n", "default",
		"ENABLE_INIT_CONTAINER_INJECTION=false", "ENABLE_PROBES_INJECTION=false"); r.err != nil {
		t.Fatal(r)
	}
	e.operatorReady("default", "kuberay-operator")
	const overwrite = `ray.io/overwrite-container-cmd: "true"`
	const cmd = "\n          command: [gpuload, --json, --alloc, 19GiB, --hold, 1h]"
	file, _ := e.recipe("kuberay.yaml",
		"metadata:\n  name: fractions\n", "metadata:\n  name: fractions\n  annotations: {"+overwrite+"}\n",
		"    template:\n      spec:\n",
		"    template:\n      metadata:\n        annotations: {"+overwrite+"}\n      spec:\n",
		"annotations: {kerf.dev/min-enforcement: userspace}", "annotations: {kerf.dev/min-enforcement: userspace, "+
			overwrite+"}",
		"image: rayproject/ray:2.49.0\n", "image: "+loadImage+"\n          command: [sleep, \"3600\"]\n",
		"image: rayproject/ray:2.49.0-gpu", "image: "+loadImage+cmd,
		"cpu: \"2\", memory: 8Gi", "cpu: 50m, memory: 64Mi", "cpu: \"4\", memory: 16Gi", "cpu: 50m, memory: 64Mi")
	typed := func(n int) string {
		return e.typePage(strings.ReplaceAll(e.pageBlock(page, n), "deploy/recipes/kuberay.yaml", file))
	}
	typed(0)
	const label = "ray.io/group=quarter"
	for _, p := range e.podsWith(label, 4) {
		p.running()
		e.wantHeld(p, "ray-worker", share(20*gib, 25))
		if l := p.loads("ray-worker", 1)[0]; l.Error != nil || l.Total == nil || *l.Total != 20*gib {
			t.Errorf("%s: %v", p.name, l)
		}
	}
	if out := typed(1); strings.Count(out, "quarter-worker") != 4 {
		t.Errorf("the page's command prints:\n%s", out)
	}
	typed(2)
	e.podsWith(label, 2)
	eventually(e, "two grants", func() error {
		if n := len(e.picture().Grants); n != 2 {
			return fmt.Errorf("%d grants", n)
		}
		return nil
	})
}
