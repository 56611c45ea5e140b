// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kerf-gpu/kerf/api/gpunode"
)

const (
	// instanceTypes is what the provider offers: the machine of the recipe, as its cloud describes it. The resources of
	// Kerf come from the recipe's NodeOverlay.
	instanceTypes = "testdata/karpenter-types.json"
	// nodeClass is the provider's counterpart of the recipe's EC2NodeClass.
	nodeClass = "apiVersion: karpenter.kwok.sh/v1alpha1\nkind: KWOKNodeClass\nmetadata: {name: gpu}\n"
	// l40sGiB is what a GPU of the recipe's machine gives.
	l40sGiB = 44
)

// allowPlaceholders gives kerf-scheduler the rights for placeholders, as the chart does.
func (e *testCase) allowPlaceholders() {
	e.Helper()
	const name = "kerf-placeholders"
	e.Cleanup(func() { e.kubectl("", "delete", "role,rolebinding", name, "-n", kerfNamespace) })
	for _, args := range [][]string{{"role", name, "--verb=create,patch,delete", "--resource=pods"},
		{"rolebinding", name, "--role=" + name, "--serviceaccount=" + kerfNamespace + ":" + schedulerName}} {
		if r := e.kubectl("", append([]string{"create", "-n", kerfNamespace}, args...)...); r.err != nil {
			e.Fatal(r)
		}
	}
}

// withKarpenter runs Karpenter, and installs the recipe as the page says, until the test ends.
func (e *testCase) withKarpenter() {
	e.Helper()
	program := e.buildOperator("karpenter")
	kinds, err := os.ReadFile(program + ".yaml")
	if err != nil {
		e.Fatal(err)
	}
	if r := e.kubectl(string(kinds), "apply", "--server-side", "-f", "-"); r.err != nil {
		e.Fatal(r)
	}
	e.Cleanup(func() { e.kubectl(string(kinds), "delete", "--ignore-not-found", "--timeout=60s", "-f", "-") })
	e.Cleanup(func() { // after the end of Karpenter
		if r := e.kubectl("", "delete", "nodes", "-l", "karpenter.sh/nodepool", "--timeout=60s"); r.err != nil {
			e.Error(r)
		}
	})
	e.runsController(program, "--instance-types-file-path", instanceTypes, "--disable-leader-election=true",
		"--metrics-port=0", "--health-probe-port=0", "--batch-idle-duration=1s", "--feature-gates=NodeOverlay=true")
	e.Cleanup(func() {
		for _, kind := range []string{"nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "nodeoverlays.karpenter.sh",
			"kwoknodeclasses.karpenter.kwok.sh"} {
			if r := e.kubectl("", "delete", kind, "--all", "--timeout=60s"); r.err != nil {
				e.Error(r)
			}
		}
	})
	if err := e.apply(nodeClass); err != nil {
		e.Fatal(err)
	}
	file, _ := e.recipe("karpenter.yaml", "{group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}",
		"{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: gpu}")
	e.typePage(strings.ReplaceAll(e.pageBlock("docs/use/autoscaling.md", 0), "deploy/recipes/karpenter.yaml", file))
}

// nodeClaims are the names of the nodes that Karpenter has requested; empty while one has none.
func (e *testCase) nodeClaims() []string {
	e.Helper()
	r := e.kubectl("", "get", "nodeclaims.karpenter.sh", "-o",
		`jsonpath={range .items[*]}node={.status.nodeName}{"\n"}{end}`)
	if r.err != nil {
		e.Fatal(r)
	}
	var out []string
	for l := range strings.Lines(r.out) {
		out = append(out, strings.TrimPrefix(strings.TrimSpace(l), "node="))
	}
	return out
}

// placeholders are the annotations of all placeholders: NAMESPACE/NAME of their pods.
func (e *testCase) placeholders() (out []string) {
	e.Helper()
	list, err := e.client.CoreV1().Pods(kerfNamespace).List(background(),
		metav1.ListOptions{LabelSelector: "kerf.dev/placeholder-for"})
	if err != nil {
		e.Fatal(err)
	}
	for _, p := range list.Items {
		out = append(out, p.Annotations["kerf.dev/placeholder-for-pod"])
	}
	return out
}

// arrives does for a node of Karpenter's what its kubelet, device plugin and agent would do.
func (h *hollow) arrives(gpus int) {
	h.Helper()
	has := map[string]string{"cpu": "48", "memory": "384Gi", "pods": "110", "kerf.dev/gpu": fmt.Sprint(gpus),
		"kerf.dev/gpu-percent": fmt.Sprint(100 * gpus), "kerf.dev/gpu-memory-gib": fmt.Sprint(l40sGiB * gpus)}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"allocatable": has, "capacity": has,
		"conditions": []map[string]string{{"type": "Ready", "status": "True"}}}})
	if err != nil {
		h.Fatal(err)
	}
	eventually(h, "the state of node "+h.names[0], func() error { // Others write to it, too.
		_, err := h.client.CoreV1().Nodes().Patch(background(), h.names[0], types.StrategicMergePatchType, patch,
			metav1.PatchOptions{}, "status")
		return errors.Join(err, h.beat(0, time.Now(), time.Hour))
	})
	h.mustTell(0, func(s *gpunode.Status) {
		for i := range s.GPUs {
			g := &s.GPUs[i]
			g.Model, g.CapacityBytes, g.AllocatableBytes, g.FreeBytes = "L40S", 45*giB, l40sGiB*giB, l40sGiB*giB
		}
	})
}

// The page of autoscalers, with Karpenter: a pod that fits a node only in total brings one node, and runs there. A pod
// that is too large for each GPU brings none.
func TestNeighborKarpenter(t *testing.T) {
	if !*runNeighbors {
		t.Skip("Karpenter is not built for the suite: run it with make e2e-neighbors")
	}
	e := withSchedulerAs(t, "placementTimeout: 5m", "placementTimeout: 5m\n          placeholders: kerf-system")
	e.allowPlaceholders()
	for i := range 8 { // 19 GiB are left on each of 8 GPUs
		e.create(byKerf(one(fmt.Sprint("first", i), gibs(60), hold))).running()
	}
	e.withKarpenter()
	tooLarge := e.create(byKerf(one("too-large", gibs(100), hold)))
	tooLarge.event("FailedScheduling", "")
	p := e.create(byKerf(one("needs", gibs(40), hold)))
	p.event("NodeRequested", "asks the node autoscaler for a node")
	h := &hollow{testCase: e, gpus: 4}
	t.Cleanup(h.remove)
	eventually(e, "one node of Karpenter", func() error {
		if got := e.nodeClaims(); len(got) != 1 || got[0] == "" {
			return fmt.Errorf("NodeClaims %q", got)
		}
		h.names = e.nodeClaims()
		return nil
	})
	h.arrives(4)
	p.until("on the new node", func(o *corev1.Pod) error {
		if o.Spec.NodeName != h.names[0] {
			return fmt.Errorf("it is on %q: %s", o.Spec.NodeName, describe(o))
		}
		return nil
	})
	eventually(e, "no placeholder", func() error {
		if left := e.placeholders(); len(left) != 0 {
			return fmt.Errorf("placeholders of %v", left)
		}
		return nil
	})
	if got := e.nodeClaims(); len(got) != 1 {
		t.Errorf("Karpenter requested %d nodes: %q", len(got), got)
	}
	if o := tooLarge.get(); o.Spec.NodeName != "" {
		t.Errorf("the pod that is too large is on %s", o.Spec.NodeName)
	}
}
